-- The run that has the job of a slot. Index: runs_by_slot.
SELECT id FROM mainspring_runs INDEXED BY mainspring_runs_by_slot
WHERE schedule = ? AND slot = ? AND reason IS NULL
