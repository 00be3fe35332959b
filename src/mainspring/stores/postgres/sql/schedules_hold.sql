-- Holds schedules that are still at these revisions until the transaction ends, in the order given. Waits for nobody: what
-- another has his hands on is left out. Index: positions_pkey.
SELECT held.schedule
FROM unnest($1::text[], $2::bigint[]) AS asked (schedule, revision) CROSS JOIN LATERAL (
    SELECT schedule FROM mainspring.positions
    WHERE positions.schedule = asked.schedule AND positions.revision = asked.revision
    FOR UPDATE SKIP LOCKED
) AS held
