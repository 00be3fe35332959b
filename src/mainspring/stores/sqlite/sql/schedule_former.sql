-- Whether runs are kept under a name, and the last slot that has a job. Indexes: runs_of_schedule, runs_by_slot.
SELECT (
    SELECT max(slot) FROM mainspring_runs INDEXED BY mainspring_runs_by_slot
    WHERE schedule = :name AND reason IS NULL AND slot IS NOT NULL
)
WHERE EXISTS (SELECT 1 FROM mainspring_runs INDEXED BY mainspring_runs_of_schedule WHERE schedule = :name)
