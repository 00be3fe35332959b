-- A page of running jobs, newest first. Indexes: jobs_running, and a sort of what it holds, which the OFFSET insists
-- on; traces_pkey.
SELECT
    jobs.id, jobs.queue, jobs.task, jobs.priority, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses,
    jobs.loss_limit, jobs.lease, jobs.revision, jobs.max_attempts, jobs.policy, jobs.expires_at,
    jobs.cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text,
    jobs.node, jobs.started_at, jobs.seconds, jobs.enqueued_at, jobs.timeout, jobs.key, jobs.unique_key,
    jobs.unique_period, jobs.unique_on_conflict, jobs.parent, jobs.facts, jobs.payload, traces.saved, traces.progress,
    traces.error, NULL::bytea
FROM (
    SELECT * FROM mainspring.jobs WHERE state = 'running' AND id <= $1::uuid OFFSET 0
) AS jobs LEFT JOIN mainspring.traces AS traces ON jobs.traced AND traces.job = ANY (ARRAY[jobs.id])
WHERE ($3::text[] IS NULL OR jobs.state = ANY ($3))
    AND ($4::text IS NULL OR jobs.queue = $4)
    AND ($5::text IS NULL OR jobs.task = $5)
    AND ($6::bytea IS NULL OR position($6 IN jobs.facts) > 0)
    AND $7::text IS NULL
ORDER BY jobs.id DESC LIMIT $2::bigint
