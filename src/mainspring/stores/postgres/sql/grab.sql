-- Looks and takes at once, where there is nothing to choose by but the order: no gates, no suspects, room everywhere. What
-- peek.sql would find out in passing (the node is not alive, the rules have changed, there is a lane that the asker does
-- not know) makes it take nothing; then peek.sql has to be asked. Indexes: jobs_waiting, jobs_pkey, nodes_id_key.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
held AS MATERIALIZED (
    SELECT jobs.id, jobs.state
    FROM (
        SELECT line.id, asked.lane
        FROM unnest($7::bigint[], $8::integer[], $9::timestamptz[], $10::uuid[])
            AS asked (lane, priority, mark_at, mark_id)
        CROSS JOIN LATERAL (
            SELECT id, run_at FROM mainspring.jobs
            WHERE lane = asked.lane AND (run_at, id) >= (asked.mark_at, asked.mark_id)
                AND run_at <= (SELECT now FROM clock)
            ORDER BY run_at, id LIMIT $11::integer
        ) AS line
        WHERE (SELECT version FROM mainspring.rules) = $4::bigint
            AND EXISTS (SELECT FROM mainspring.nodes WHERE id = $2::text AND term = $3::bigint AND alive)
            AND NOT EXISTS (
                SELECT FROM unnest($5::bigint[], $6::bigint[]) AS gap (above, below)
                CROSS JOIN LATERAL (
                    SELECT FROM mainspring.jobs WHERE lane > gap.above AND lane < gap.below LIMIT 1
                ) AS found
            )
        ORDER BY asked.priority DESC, line.run_at, line.id LIMIT $11
    ) AS chosen JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[chosen.id])
    WHERE coalesce(jobs.lane, 0) = chosen.lane AND jobs.run_at <= (SELECT now FROM clock)
    FOR UPDATE OF jobs SKIP LOCKED
)
UPDATE mainspring.jobs SET
    lane = NULL, state = 'running', attempt = attempt + 1, previous_lease = lease,
    lease = ((lease >> 32) + 1) << 32 | $12::bigint, revision = revision + 1, node = $2,
    started_at = (SELECT now FROM clock)
FROM held WHERE jobs.id = ANY (ARRAY[held.id])
RETURNING
    jobs.id, held.state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy, enqueued_at,
    payload, traced, expires_at, timeout, key, parent, facts, home, (SELECT now FROM clock)
