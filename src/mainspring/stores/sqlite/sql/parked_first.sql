-- The first parked job of a task and key in each of their lanes, but for jobs whose time is not a number. One step for
-- each lane. Indexes: primary key, jobs_parked.
SELECT keys.lane, jobs.run_at, jobs.id
FROM mainspring_parked_keys AS keys CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = (
    SELECT number FROM mainspring_jobs INDEXED BY mainspring_jobs_parked
    WHERE lane = keys.lane AND parked = keys.key AND run_at < ''
    ORDER BY run_at, id LIMIT 1
)
WHERE keys.task = ? AND keys.key = ?
