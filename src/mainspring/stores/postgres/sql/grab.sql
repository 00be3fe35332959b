-- Claims the first due jobs, if no limit, suspect or room of a queue restricts the choice.
-- Takes nothing if peek.sql has to be used instead: the node is not alive, the rules have changed, or there is a
-- priority that the caller does not know. Rows are locked while the index is read, and those that are locked are
-- skipped, so that two nodes take different jobs; a row that has changed since the snapshot is left to the next claim.
-- Lists the priorities in the order of $7. A job on its last chance beyond the first $11 jobs ends the list. The last
-- columns are how many jobs were locked, and when the next job of these priorities is due, whichever task and queue it
-- has.
-- Indexes: jobs_by_order, nodes_id_key.
WITH clock AS MATERIALIZED (
    SELECT now, date_part('epoch', now) AS epoch
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS reading
),
held AS MATERIALIZED (
    SELECT free.row, free.state, free.care, row_number() OVER () AS number
    FROM (
        SELECT free.*
        FROM unnest($7::smallint[], $8::timestamptz[], $9::uuid[]) AS asked (priority, position_at, position_id)
        CROSS JOIN LATERAL (
            SELECT ctid AS row, state, care FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 = asked.priority
                AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= (SELECT now FROM clock)
                AND task = ANY ($13::text[]) AND queue <> ALL ($14::text[])
            ORDER BY run_at, id LIMIT $10::integer FOR UPDATE SKIP LOCKED
        ) AS free
        WHERE (SELECT version FROM mainspring.rules) = $4::bigint
            AND EXISTS (SELECT FROM mainspring.nodes WHERE id = $2::text AND term = $3::bigint AND alive)
            AND NOT EXISTS (
                SELECT FROM unnest($5::smallint[], $6::smallint[]) AS gap (above, below) CROSS JOIN LATERAL (
                    SELECT FROM mainspring.jobs
                    WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                        AND priority + 0 > gap.above AND priority + 0 < gap.below
                    ORDER BY priority + 0 LIMIT 1
                ) AS found
            )
        LIMIT $10
    ) AS free
),
given AS MATERIALIZED (
    SELECT row, state FROM held
    WHERE number < coalesce((SELECT min(number) FROM held WHERE care = 2 AND number > $11::integer), number + 1)
)
UPDATE mainspring.jobs SET
    state = 'running', attempt = attempt + 1, previous_lease = lease,
    lease = ((lease >> 32) + 1) << 32 | $12::bigint, revision = revision + 1, node = $2,
    started_at = (SELECT now FROM clock)
FROM given WHERE jobs.ctid = given.row
RETURNING
    jobs.id, given.state, date_part('epoch', run_at), attempt, granted, losses, loss_limit, lease, revision, max_attempts,
    policy, date_part('epoch', enqueued_at), payload, traced, expires_at, timeout, key, parent, facts, queue, task, priority, care,
    (SELECT epoch FROM clock), CASE WHEN run_at < '1900-01-01Z' THEN greatest(run_at, '0001-01-01Z') END, (SELECT count(*) FROM held), (
        SELECT date_part('epoch', min(later.run_at)) FROM unnest($7) AS asked (priority) CROSS JOIN LATERAL (
            SELECT run_at FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 = asked.priority AND run_at > (SELECT now FROM clock)
            ORDER BY run_at, id LIMIT 1
        ) AS later
    )
