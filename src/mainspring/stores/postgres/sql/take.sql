-- Gives jobs to a node, each under a new lease, if they still wait in the queue where they were seen, if the rules have not
-- changed and the node is alive. Locked rows are skipped: another transaction has them. `= ANY (ARRAY[…])` and the other
-- expressions keep the planner to the primary key (docs/decisions/0041). Indexes: jobs_pkey, nodes_id_key.
WITH clock AS MATERIALIZED (
    SELECT now, date_part('epoch', now) AS epoch
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS reading
),
held AS MATERIALIZED (
    SELECT jobs.id, jobs.state
    FROM unnest($4::uuid[], $5::text[], $6::smallint[]) AS chosen (id, queue, care)
    JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[chosen.id])
    WHERE jobs.state || '' <> 'running' AND NOT coalesce(jobs.parked, false) AND jobs.queue || '' = chosen.queue
        AND jobs.care + 0 = chosen.care AND run_at <= (SELECT now FROM clock)
        AND (SELECT version FROM mainspring.rules) = $3::bigint
        AND EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = $2::text AND term = $7::bigint AND alive)
    FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE mainspring.jobs SET
    state = 'running', attempt = attempt + 1, previous_lease = lease,
    lease = ((lease >> 32) + 1) << 32 | $8::bigint, revision = revision + 1, node = $2,
    started_at = (SELECT now FROM clock)
FROM held WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING
    jobs.id, held.state, date_part('epoch', run_at), attempt, granted, losses, loss_limit, lease, revision, max_attempts,
    policy, date_part('epoch', enqueued_at), payload, traced, expires_at, timeout, key, parent, facts, queue, task, priority, care,
    (SELECT epoch FROM clock), CASE WHEN run_at < '1900-01-01Z' THEN greatest(run_at, '0001-01-01Z') END,
    NULL::bigint, NULL::double precision
