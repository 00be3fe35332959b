-- Of these names, those of which runs are kept, each with the last slot that has a job. Indexes: runs_of_schedule,
-- runs_by_slot.
SELECT asked.name, (
    SELECT max(slot) FROM mainspring.runs
    WHERE runs.schedule = asked.name AND reason IS NULL AND slot IS NOT NULL
)
FROM unnest($1::text[]) AS asked (name)
WHERE EXISTS (SELECT FROM mainspring.runs WHERE runs.schedule = asked.name)
ORDER BY asked.name COLLATE "C"
