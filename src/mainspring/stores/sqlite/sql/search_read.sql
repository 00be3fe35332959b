-- Those of some jobs that are wanted, with everything that is kept of them, but for attempts and log lines. The same
-- columns as view_job. Index: primary keys.
SELECT
    jobs.number, jobs.id, jobs.lane, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses, jobs.lease,
    jobs.revision, jobs.expires_at, jobs.cancel_requested_at, jobs.finished_at, jobs.keep_until, jobs.cause,
    payloads.max_attempts, payloads.loss_limit, payloads.policy,
    iif(:preview IS NULL, payloads.payload, substr(payloads.payload, 1, :preview)),
    payloads.enqueued_at, payloads.parent, payloads.facts, jobs.node, jobs.started_at, jobs.seconds,
    payloads.timeout, payloads.key, payloads.unique_key, iif(:preview IS NULL, traces.saved, NULL), traces.percent,
    traces.message, iif(:preview IS NULL, jobs.result, NULL), traces.error,
    length(payloads.payload), length(traces.saved), length(jobs.result)
FROM json_each(:numbers) AS wanted
CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = wanted.value
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
LEFT JOIN mainspring_traces AS traces ON traces.number = jobs.number
WHERE (:states IS NULL OR jobs.state IN (SELECT value FROM json_each(:states)))
    AND (:lanes IS NULL OR jobs.lane IN (SELECT value FROM json_each(:lanes)))
    AND (:cause IS NULL OR jobs.cause = :cause)
    AND (:node IS NULL OR jobs.node = :node)
    AND (:parent IS NULL OR payloads.parent = :parent)
    AND (:key IS NULL OR payloads.key = :key)
    AND (:since IS NULL OR payloads.enqueued_at >= :since)
    AND (:until IS NULL OR payloads.enqueued_at < :until)
    AND (:tag IS NULL OR EXISTS (SELECT 1 FROM json_each(payloads.facts, '$.tags') AS tags WHERE tags.value = :tag))
