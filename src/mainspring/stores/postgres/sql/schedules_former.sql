-- Of these names, those of which runs are kept, each with the last slot that has a job. Reads one entry of each index for
-- a name. Indexes: runs_of_schedule, runs_by_slot.
SELECT asked.name, (
    SELECT slot FROM mainspring.runs
    WHERE runs.schedule = asked.name AND reason IS NULL AND slot IS NOT NULL
    ORDER BY slot DESC LIMIT 1
)
FROM unnest($1::text[]) AS asked (name) CROSS JOIN LATERAL (
    SELECT FROM mainspring.runs WHERE runs.schedule = asked.name ORDER BY id DESC LIMIT 1
) AS newest
ORDER BY asked.name COLLATE "C"
