-- A page of the jobs that one job enqueued, newest first. Index: payloads_by_parent, and a sort of what it finds.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy,
    payloads.payload, payloads.enqueued_at, payloads.parent, payloads.facts, jobs.node, jobs.started_at, jobs.seconds,
    payloads.timeout, payloads.key, payloads.unique_key, traces.saved, traces.percent, traces.message, jobs.result,
    traces.error
FROM mainspring_payloads AS payloads
CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = payloads.number
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
LEFT JOIN mainspring_traces AS traces ON traces.number = jobs.number
WHERE payloads.parent = :parent AND jobs.id < :after
    AND (:states IS NULL OR jobs.state IN (SELECT value FROM json_each(:states)))
    AND (:queue IS NULL OR lanes.queue = :queue)
    AND (:task IS NULL OR lanes.task = :task)
    AND (:cause IS NULL OR jobs.cause = :cause)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(payloads.facts, '$.tags') AS tags WHERE tags.value = :tag))
ORDER BY jobs.id DESC LIMIT :limit
