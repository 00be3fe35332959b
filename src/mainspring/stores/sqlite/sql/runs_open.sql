-- Open runs of a schedule, the newest first. Index: runs_open.
SELECT id FROM mainspring_runs INDEXED BY mainspring_runs_open
WHERE schedule = ? AND is_open
ORDER BY id DESC LIMIT ?
