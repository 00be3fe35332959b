-- Brings a finished job back among those that wait, with all that its attempts have left behind; it is held by this
-- transaction, so it does not matter whether its time has passed meanwhile. Index: history_by_id.
WITH back AS (
    DELETE FROM mainspring.history WHERE id = $1::uuid AND lease = $13::bigint AND revision = $10::bigint - 1 RETURNING *
),
traces AS (
    INSERT INTO mainspring.traces (job, saved, progress, error) SELECT id, saved, progress, error FROM back
),
attempts AS (
    INSERT INTO mainspring.attempts (job, lease, body)
    SELECT id, -cardinality(back.attempts) + place, body
    FROM back CROSS JOIN unnest(back.attempts) WITH ORDINALITY AS each (body, place)
),
log_lines AS (
    INSERT INTO mainspring.log_lines (job, position, body)
    SELECT id, place, body FROM back CROSS JOIN unnest(back.log_lines) WITH ORDINALITY AS each (body, place)
)
INSERT INTO mainspring.jobs (
    id, care, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision,
    max_attempts, policy, expires_at, cancel_requested_at, node, settled_by, started_at, seconds, enqueued_at, timeout,
    key, unique_key, unique_period, unique_on_conflict, parent, facts, traced, payload
)
SELECT
    id, $2::smallint, $3::text, task, $4::smallint, $5::text, $6::timestamptz, $7::integer, $8::integer, $9::integer,
    loss_limit, lease, $10, max_attempts, policy, $11::timestamptz, $12::timestamptz, node, settled_by,
    started_at, seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent, facts, true,
    payload
FROM back
