-- The attempts of a job that did not succeed. Indexes: jobs_by_id, attempts' primary key.
SELECT lease, attempt, node, event, started_at, ended_at, seconds, error, reason
FROM mainspring_attempts WHERE number = (SELECT number FROM mainspring_jobs WHERE id = ?) ORDER BY lease
