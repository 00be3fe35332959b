-- A job that waits, held until the transaction ends; nothing if another has it just now. Index: jobs_pkey.
SELECT
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    expires_at, cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text
FROM mainspring.jobs WHERE id = $1::uuid AND state <> 'running' FOR UPDATE SKIP LOCKED
