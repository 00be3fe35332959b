-- Running jobs whose node is not alive, those with the fewest losses first. Reads the index of running jobs only.
-- Indexes: jobs_running, nodes_alive.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy, jobs.node
FROM mainspring_jobs AS jobs INDEXED BY mainspring_jobs_running
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.state = 'running' AND jobs.node NOT IN (SELECT id FROM mainspring_nodes INDEXED BY mainspring_nodes_alive WHERE alive = 1)
ORDER BY jobs.losses, jobs.number LIMIT ?
