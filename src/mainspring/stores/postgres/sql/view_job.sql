-- Jobs with everything that is kept of them, but for their attempts and log lines, or previews ($2). Those that wait or run and those
-- that have finished in one statement, so that one that finishes meanwhile is not missed; none is in both. Indexes:
-- jobs_pkey, traces_pkey, history_by_id.
SELECT
    jobs.id, jobs.queue, jobs.task, jobs.priority, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses,
    jobs.loss_limit, jobs.lease, jobs.revision, jobs.max_attempts, jobs.policy, jobs.expires_at,
    jobs.cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text,
    jobs.node, jobs.started_at, jobs.seconds, jobs.enqueued_at, jobs.timeout, jobs.key, jobs.unique_key,
    jobs.unique_period, jobs.unique_on_conflict, jobs.parent, jobs.facts,
    CASE WHEN $2::integer IS NULL THEN jobs.payload ELSE substr(jobs.payload, 1, $2) END,
    CASE WHEN $2 IS NULL THEN traces.saved END, traces.progress, traces.error, NULL::bytea,
    octet_length(jobs.payload), octet_length(traces.saved), NULL::integer
FROM mainspring.jobs AS jobs LEFT JOIN mainspring.traces AS traces ON jobs.traced AND traces.job = ANY (ARRAY[jobs.id])
WHERE jobs.id = ANY ($1::uuid[])
UNION ALL
SELECT
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
    policy, expires_at, cancel_requested_at, finished_at, keep_until, cause,
    node, started_at, seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent,
    facts, CASE WHEN $2 IS NULL THEN payload ELSE substr(payload, 1, $2) END, CASE WHEN $2 IS NULL THEN saved END,
    progress, error, CASE WHEN $2 IS NULL THEN result END,
    octet_length(payload), octet_length(saved), octet_length(result)
FROM mainspring.history
WHERE id = ANY ($1) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
