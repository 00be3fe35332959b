-- Who has a unique key, and in which state that job is now, if it is still there. Indexes: primary key, jobs_by_id.
SELECT keys.job, keys.taken_until, jobs.state
FROM mainspring_unique_keys AS keys LEFT JOIN mainspring_jobs AS jobs ON jobs.id = keys.job
WHERE keys.task = ? AND keys.key = ?
