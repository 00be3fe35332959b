-- The same for the jobs of a queue.
INSERT OR IGNORE INTO mainspring_places (scope, name, key, job, lease, node)
SELECT 'queue', lanes.queue, '', jobs.id, jobs.lease, jobs.node
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_running
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
WHERE jobs.state = 'running' AND lanes.queue = ?
