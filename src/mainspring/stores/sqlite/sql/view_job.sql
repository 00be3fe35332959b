-- A job with everything that is kept of it, but for its attempts and log lines, or a preview of it
-- (parameters: its length four times, then the id). Index: jobs_by_id.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy,
    iif(? IS NULL, payloads.payload, substr(payloads.payload, 1, ?)),
    payloads.enqueued_at, payloads.parent, payloads.facts, jobs.node, jobs.started_at, jobs.seconds,
    payloads.timeout, payloads.key, payloads.unique_key, iif(? IS NULL, traces.saved, NULL), traces.percent,
    traces.message, iif(? IS NULL, jobs.result, NULL), traces.error,
    length(payloads.payload), length(traces.saved), length(jobs.result)
FROM mainspring_jobs AS jobs
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
LEFT JOIN mainspring_traces AS traces ON traces.number = jobs.number
WHERE jobs.id = ?
