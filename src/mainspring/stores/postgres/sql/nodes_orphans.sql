-- Running jobs whose node is not alive, those with the fewest losses first. Looks up each dead node in the index of
-- running jobs, so that the work of those alive does not matter, and none of which all is over: while an old snapshot is
-- held open, all that it ever ran is walked over. Indexes: nodes_uncleared, jobs_running.
SELECT orphans.*
FROM mainspring.nodes AS nodes CROSS JOIN LATERAL (
    SELECT
        id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
        policy, expires_at, cancel_requested_at, NULL::timestamptz, NULL::timestamptz, NULL::text, node
    FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id
    ORDER BY losses, id LIMIT $1::bigint
) AS orphans
WHERE NOT nodes.alive AND NOT nodes.cleared
ORDER BY orphans.losses, orphans.id LIMIT $1
