-- Which schedules are at these revisions, whoever has them in hand. Index: positions_pkey.
SELECT found.schedule
FROM unnest($1::text[], $2::bigint[]) AS asked (schedule, revision) CROSS JOIN LATERAL (
    SELECT schedule FROM mainspring.positions
    WHERE positions.schedule = asked.schedule AND positions.revision = asked.revision
    LIMIT 1
) AS found
