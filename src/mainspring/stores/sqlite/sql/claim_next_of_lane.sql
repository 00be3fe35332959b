-- The next jobs of a lane from a position on, due or not, but for those whose time is not a number.
-- Indexes: jobs_claimable_by_lane, payloads' primary key.
SELECT jobs.number, payloads.key, jobs.run_at, jobs.id
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_claimable_by_lane
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.lane = ? AND (jobs.run_at, jobs.id) > (?, ?) AND jobs.run_at < '' AND jobs.rank IS NOT NULL
ORDER BY jobs.run_at, jobs.id LIMIT ?
