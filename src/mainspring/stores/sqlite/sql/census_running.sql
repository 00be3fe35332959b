-- How many jobs run, by lane, of so many. Index: jobs_running.
SELECT lane, count(*) FROM (
    SELECT lane FROM mainspring_jobs INDEXED BY mainspring_jobs_running WHERE state = 'running' LIMIT ?
)
GROUP BY lane
