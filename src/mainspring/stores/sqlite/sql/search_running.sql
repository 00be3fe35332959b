-- The next running jobs of some lanes, the newest first. Index: jobs_running, and a sort of what it holds.
SELECT id, number FROM mainspring_jobs INDEXED BY mainspring_jobs_running
WHERE state = 'running' AND id < :after AND lane IN (SELECT value FROM json_each(:lanes))
ORDER BY id DESC LIMIT :limit
