-- Jobs that wait or run, held until the transaction ends, by id, so that two who want several do not wait for each other
-- in a circle. Index: jobs_pkey.
SELECT
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    expires_at, cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text,
    node, previous_lease, settled_by, started_at, enqueued_at, key, unique_key, unique_period, unique_on_conflict, traced
FROM mainspring.jobs WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
