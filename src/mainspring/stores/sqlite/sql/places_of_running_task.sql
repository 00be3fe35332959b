-- Takes places for the jobs of a task that run already when a gate is put up. Indexes: jobs_running, lanes' primary key.
INSERT OR IGNORE INTO mainspring_places (scope, name, key, job, lease, node)
SELECT 'task', lanes.task, '', jobs.id, jobs.lease, jobs.node
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_running
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
WHERE jobs.state = 'running' AND lanes.task = ?
