-- Moves jobs that have finished into history, with all that their attempts have left behind; each is held by this
-- transaction. Indexes: jobs_pkey, traces_pkey, attempts_pkey, log_lines_pkey, unique_keys_pkey.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::uuid[], $2::text[], $3::timestamptz[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[],
        $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::text[], $13::text[],
        $14::double precision[], $15::bytea[]
    ) AS one (
        id, state, run_at, attempt, granted, losses, revision, expires_at, cancel_requested_at, finished_at, keep_until,
        cause, settled_by, took, result
    )
),
gone AS (
    DELETE FROM mainspring.jobs USING new WHERE jobs.id = ANY (ARRAY[new.id])
    RETURNING jobs.id, queue, task, priority, loss_limit, lease, max_attempts, policy, node, jobs.settled_by, started_at,
        seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent, facts, payload
),
traces AS (DELETE FROM mainspring.traces USING new WHERE job = ANY (ARRAY[new.id]) RETURNING job, saved, progress, error),
attempts AS (DELETE FROM mainspring.attempts USING new WHERE job = ANY (ARRAY[new.id]) RETURNING job, lease, body),
log_lines AS (DELETE FROM mainspring.log_lines USING new WHERE job = ANY (ARRAY[new.id]) RETURNING job, position, body),
given_up AS (
    DELETE FROM mainspring.unique_keys WHERE ctid = ANY (ARRAY(
        SELECT held.ctid
        FROM gone JOIN mainspring.unique_keys AS held
            ON held.task = gone.task AND held.key = gone.unique_key AND held.job = gone.id
        WHERE gone.unique_key IS NOT NULL AND held.taken_until IS NULL
        FOR UPDATE OF held SKIP LOCKED
    ))
)
INSERT INTO mainspring.history (
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    expires_at, cancel_requested_at, finished_at, keep_until, cause, node, settled_by, started_at, seconds, enqueued_at,
    timeout, key, unique_key, unique_period, unique_on_conflict, parent, facts, payload, result, saved, progress, error,
    attempts, log_lines
)
SELECT
    gone.id, queue, task, priority, new.state, new.run_at, new.attempt, new.granted, new.losses, loss_limit, lease,
    new.revision, max_attempts, policy, new.expires_at, new.cancel_requested_at, new.finished_at, new.keep_until,
    new.cause, node, coalesce(new.settled_by, gone.settled_by), started_at,
    CASE WHEN new.settled_by IS NULL THEN gone.seconds ELSE new.took END, enqueued_at, timeout, key, unique_key,
    unique_period, unique_on_conflict, parent, facts, payload, new.result, traces.saved, traces.progress, traces.error,
    (SELECT array_agg(body ORDER BY attempts.lease) FROM attempts WHERE attempts.job = gone.id),
    (SELECT array_agg(body ORDER BY position) FROM log_lines WHERE log_lines.job = gone.id)
FROM gone JOIN new ON new.id = gone.id LEFT JOIN traces ON traces.job = gone.id
