-- The next due jobs of a line, in order, with all that an attempt needs; the same columns as jobs_claimed.
-- Indexes: jobs_waiting, payloads' primary key.
SELECT
    jobs.number, jobs.id, jobs.state, jobs.run_at, jobs.attempt, jobs.losses, jobs.lease, jobs.revision,
    payloads.max_attempts, payloads.loss_limit, payloads.policy, payloads.payload, payloads.enqueued_at,
    jobs.granted, jobs.expires_at, payloads.timeout, payloads.key, payloads.parent, payloads.facts
FROM mainspring_jobs AS jobs CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.strand = ? AND jobs.run_at <= ?
ORDER BY jobs.run_at, jobs.id LIMIT ?
