-- How many jobs run, by queue. Index: jobs_running.
SELECT lanes.queue, count(*)
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_running
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
WHERE jobs.state = 'running'
GROUP BY lanes.queue
