-- The first due jobs of a rank, with all that an attempt needs; the same columns as jobs_claimed.
-- Indexes: jobs_claimable, payloads' primary key.
SELECT
    jobs.number, jobs.id, jobs.state, jobs.run_at, jobs.attempt, jobs.losses, jobs.lease, jobs.revision,
    payloads.max_attempts, payloads.loss_limit, payloads.policy, payloads.payload, payloads.enqueued_at,
    jobs.granted, jobs.expires_at, payloads.timeout, payloads.key, payloads.parent, payloads.facts, jobs.lane
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_claimable
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.rank = ? AND jobs.run_at <= ?
ORDER BY jobs.run_at, jobs.id LIMIT ?
