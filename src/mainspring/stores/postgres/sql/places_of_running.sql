-- Takes places for the jobs that run already when a gate is put up. Waits for those that are being settled: they must not
-- leave a place behind; by id, as they hold several. Reads all running jobs. Index: jobs_running.
INSERT INTO mainspring.places (scope, name, key, job, lease, node)
SELECT $1::text, $2::text, CASE WHEN $1 = 'key' THEN key ELSE '' END, id, lease, node
FROM mainspring.jobs
WHERE state = 'running' AND CASE $1
    WHEN 'task' THEN task = $2 WHEN 'queue' THEN queue = $2 ELSE task = $2 AND key IS NOT NULL
END
ORDER BY id
FOR SHARE
ON CONFLICT (scope, name, key, job, lease) DO NOTHING
