-- The same for the jobs of a task that have a key.
INSERT OR IGNORE INTO mainspring_places (scope, name, key, job, lease, node)
SELECT 'key', lanes.task, payloads.key, jobs.id, jobs.lease, jobs.node
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_running
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.state = 'running' AND lanes.task = ? AND payloads.key IS NOT NULL
