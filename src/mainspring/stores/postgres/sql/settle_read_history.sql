-- The same for finished jobs. Index: history_by_id.
SELECT
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    expires_at, cancel_requested_at, finished_at, keep_until, cause,
    node, NULL::bigint, settled_by, started_at, enqueued_at, key, unique_key, unique_period, unique_on_conflict, true
FROM mainspring.history
WHERE id = ANY ($1::uuid[]) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
ORDER BY id FOR UPDATE
