-- Runs of a schedule whose jobs have not ended, the newest first. Index: runs_open.
SELECT id FROM mainspring_runs INDEXED BY mainspring_runs_open
WHERE schedule = ? AND reason IS NULL AND state IS NULL
ORDER BY id DESC LIMIT ?
