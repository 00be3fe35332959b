-- A job, with what a change of it has to look at beside. Indexes: jobs_by_id, payloads' primary key,
-- breakers_by_probe.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy,
    jobs.node, jobs.previous_lease, jobs.settled_by, jobs.started_at, payloads.enqueued_at, payloads.key, payloads.unique_key,
    EXISTS (SELECT 1 FROM mainspring_breakers WHERE probe_job = jobs.id)
FROM mainspring_jobs AS jobs CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
WHERE jobs.id = ?
