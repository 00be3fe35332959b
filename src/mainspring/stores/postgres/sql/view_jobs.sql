-- A page of jobs, newest first, walking back from a place and leaving out what is not wanted: jobs that wait or run,
-- and finished ones, each only where asked for ($8, $9). Whether a job has a tag is told for sure by its facts alone;
-- here those are left out that cannot have it. Indexes: jobs_pkey, history_by_id in each part, traces_pkey.
(
    SELECT
        jobs.id, jobs.queue, jobs.task, jobs.priority, jobs.state, jobs.run_at, jobs.attempt, jobs.granted, jobs.losses,
        jobs.loss_limit, jobs.lease, jobs.revision, jobs.max_attempts, jobs.policy, jobs.expires_at,
        jobs.cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text,
        jobs.node, jobs.started_at, jobs.seconds, jobs.enqueued_at, jobs.timeout, jobs.key, jobs.unique_key,
        jobs.unique_period, jobs.unique_on_conflict, jobs.parent, jobs.facts, jobs.payload,
        traces.saved, traces.progress, traces.error, NULL::bytea
    FROM mainspring.jobs AS jobs LEFT JOIN mainspring.traces AS traces ON jobs.traced AND traces.job = ANY (ARRAY[jobs.id])
    WHERE jobs.id <= $1::uuid AND $8::boolean
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
    FROM mainspring.history
    WHERE id <= $1 AND $9::boolean
        AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
        AND ($3::text[] IS NULL OR state = ANY ($3))
        AND ($4::text IS NULL OR queue = $4)
        AND ($5::text IS NULL OR task = $5)
        AND ($6::bytea IS NULL OR position($6 IN facts) > 0)
        AND ($7::text IS NULL OR cause = $7)
    ORDER BY id DESC LIMIT $2::bigint
)
ORDER BY id DESC LIMIT $2
