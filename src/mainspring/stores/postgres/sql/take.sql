-- Gives jobs to a node, each under a new lease, if they can still be had from the lanes where they were seen and the rules
-- have not changed, if the node is alive. What another has its hands on is left to it. The lane is spelt so that no index
-- can serve it: it would read a whole lane for each of these. `= ANY (ARRAY[…])`: docs/decisions/0041.
-- Indexes: jobs_pkey, nodes_id_key.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
held AS MATERIALIZED (
    SELECT jobs.id, jobs.state
    FROM unnest($4::uuid[], $5::bigint[]) AS chosen (id, lane)
    JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[chosen.id])
    WHERE coalesce(jobs.lane, 0) = chosen.lane AND run_at <= (SELECT now FROM clock)
        AND (SELECT version FROM mainspring.rules) = $3::bigint
        AND EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = $2::text AND term = $6::bigint AND alive)
    FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE mainspring.jobs SET
    lane = NULL, state = 'running', attempt = attempt + 1, previous_lease = lease,
    lease = ((lease >> 32) + 1) << 32 | $7::bigint, revision = revision + 1, node = $2,
    started_at = (SELECT now FROM clock)
FROM held WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING
    jobs.id, held.state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy, enqueued_at,
    payload, traced, expires_at, timeout, key, parent, facts, home, (SELECT now FROM clock)
