-- Runs that are not open and past their time. Index: runs_by_time.
DELETE FROM mainspring_runs WHERE id IN (
    SELECT id FROM mainspring_runs INDEXED BY mainspring_runs_by_time
    WHERE keep_until <= ? AND NOT is_open
    ORDER BY keep_until LIMIT ?
)
