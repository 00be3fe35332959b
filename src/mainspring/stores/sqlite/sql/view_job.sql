-- A job with everything that is kept of it, but for its attempts and log lines. Index: jobs_by_id.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy,
    payloads.payload, payloads.enqueued_at, payloads.parent, payloads.facts, jobs.node, jobs.started_at, jobs.seconds,
    payloads.timeout, payloads.key, payloads.unique_key, traces.saved, traces.percent, traces.message, jobs.result,
    traces.error
FROM mainspring_jobs AS jobs
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
LEFT JOIN mainspring_traces AS traces ON traces.number = jobs.number
WHERE jobs.id = ?
