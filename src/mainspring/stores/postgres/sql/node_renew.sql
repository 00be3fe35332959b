-- Says that a node is alive, and tells what it holds, what is asked of it and who else is there; nothing if it is not
-- alive under this term. One statement, because a node that has nothing else to do makes it every second or two. What
-- stands beside an UPDATE does not see what that writes: the node's own row is told by the UPDATE itself.
-- What it holds is looked up among the jobs of $4, which the asker knows: the index of running jobs is not walked, where
-- all that the node ever ran still is while an old snapshot is held open (node_held.sql). What others run is not counted.
-- The database's own clock comes first, so that a node can see how far its own is from it.
-- Indexes: nodes_pkey, jobs_pkey, orders_by_node.
WITH renewed AS (
    UPDATE mainspring.nodes SET counter = counter + 1, renewed_at = coalesce($1::timestamptz, statement_timestamp())
    WHERE term = $2::bigint AND id = $3::text AND alive
    RETURNING term, counter, alive, joined_at, renewed_at, record
),
held AS MATERIALIZED (
    SELECT jobs.id, lease, cancel_requested_at
    FROM unnest($4::uuid[]) AS known (id) CROSS JOIN LATERAL (
        SELECT * FROM mainspring.jobs WHERE jobs.id = known.id OFFSET 0
    ) AS jobs
    WHERE jobs.state = 'running' AND jobs.node = $3
)
SELECT
    clock_timestamp(),
    ARRAY(SELECT ROW(held.id, held.lease, held.cancel_requested_at) FROM held ORDER BY held.id),
    ARRAY(
        SELECT ROW(orders.id, orders.node, orders.word, orders.given_at, orders.done_at, orders.answer)
        FROM mainspring.orders WHERE orders.node = $3 AND orders.done_at IS NULL
        ORDER BY orders.id
    ),
    ARRAY(
        SELECT ROW(
            present.term, present.counter, present.alive, present.joined_at, present.renewed_at, present.record,
            present.running
        )
        FROM (
            SELECT term, counter, alive, joined_at, renewed_at, record, (SELECT count(*) FROM held) AS running
            FROM renewed
            UNION ALL
            SELECT term, counter, alive, joined_at, renewed_at, record, 0
            FROM mainspring.nodes AS nodes WHERE alive AND term <> $2
        ) AS present
        ORDER BY present.joined_at, present.term
    )
FROM renewed
