-- Which runs have a job for these slots of schedules. Index: runs_by_slot.
SELECT asked.schedule, asked.slot, found.id
FROM unnest($1::text[], $2::timestamptz[]) AS asked (schedule, slot) CROSS JOIN LATERAL (
    SELECT id FROM mainspring.runs
    WHERE runs.schedule = asked.schedule AND runs.slot = asked.slot AND reason IS NULL AND slot IS NOT NULL
    LIMIT 1
) AS found
