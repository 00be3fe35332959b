-- A page of the jobs that one job enqueued, newest first. Indexes: jobs_by_parent, history_by_parent, traces_pkey, and a
-- sort of what they find; the OFFSET, and what stands behind it, keep PostgreSQL from walking back over all jobs instead.
(
    SELECT
        jobs.id, jobs.queue, jobs.task, jobs.priority, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses,
        jobs.loss_limit, jobs.lease, jobs.revision, jobs.max_attempts, jobs.policy, jobs.expires_at,
        jobs.cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text,
        jobs.node, jobs.started_at, jobs.seconds, jobs.enqueued_at, jobs.timeout, jobs.key, jobs.unique_key,
        jobs.unique_period, jobs.unique_on_conflict, jobs.parent, jobs.facts, jobs.payload,
        traces.saved, traces.progress, traces.error, NULL::bytea
    FROM (
        SELECT * FROM mainspring.jobs WHERE parent = $10::uuid OFFSET 0
    ) AS jobs LEFT JOIN mainspring.traces AS traces ON jobs.traced AND traces.job = ANY (ARRAY[jobs.id])
    WHERE $8::boolean AND jobs.id <= $1::uuid
        AND ($3::text[] IS NULL OR jobs.state = ANY ($3))
        AND ($4::text IS NULL OR jobs.queue = $4)
        AND ($5::text IS NULL OR jobs.task = $5)
        AND ($6::bytea IS NULL OR position($6 IN jobs.facts) > 0)
        AND $7::text IS NULL
    ORDER BY jobs.id DESC LIMIT $2::bigint
)
UNION ALL
(
    SELECT
        id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
        policy, expires_at, cancel_requested_at, finished_at, keep_until, cause,
        node, started_at, seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent,
        facts, payload, saved, progress, error, result
    FROM (
        SELECT * FROM mainspring.history
        WHERE parent = $10 AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules) OFFSET 0
    ) AS history
    WHERE $9::boolean AND id <= $1
        AND ($3::text[] IS NULL OR state = ANY ($3))
        AND ($4::text IS NULL OR queue = $4)
        AND ($5::text IS NULL OR task = $5)
        AND ($6::bytea IS NULL OR position($6 IN facts) > 0)
        AND ($7::text IS NULL OR cause = $7)
    ORDER BY id DESC LIMIT $2::bigint
)
ORDER BY id DESC LIMIT $2
