-- A page of failed jobs, newest first. Index: history_ended_badly in each part.
SELECT
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
    policy, expires_at, cancel_requested_at, finished_at, keep_until, cause,
    node, started_at, seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent,
    facts, payload, saved, progress, error, result
FROM mainspring.history
WHERE state = 'failed' AND id <= $1::uuid
    AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    AND ($3::text[] IS NULL OR state = ANY ($3))
    AND ($4::text IS NULL OR queue = $4)
    AND ($5::text IS NULL OR task = $5)
    AND ($6::bytea IS NULL OR position($6 IN facts) > 0)
    AND ($7::text IS NULL OR cause = $7)
ORDER BY id DESC LIMIT $2::bigint
