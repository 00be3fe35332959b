-- Renews a node, and returns its leases, open orders and the other nodes; no row if it is not alive under this term.
-- One statement, because a node that has nothing else to do makes it every second or two.
-- The row of the node is locked and not written, so that the node cannot be declared dead meanwhile. Its beat is written
-- as a new row beside the old one, which is deleted: while an old snapshot is held open, the newest is still found by one
-- look from the end of the index. Of two renewals at the same time one writes the beat.
-- Leases are looked up among the jobs of $4, which the caller holds. The index of running jobs is not scanned: while an old
-- snapshot is held open it has an entry for every job that the node ever ran (node_held.sql). Jobs of other nodes are not
-- counted. Records of nodes are sent only where the caller has another revision.
-- The database's own clock comes first, so that a node can see how far its own is from it.
-- Indexes: nodes_pkey, beats_pkey, jobs_pkey, orders_by_node.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
own AS MATERIALIZED (
    SELECT term, joined_at, record, revision FROM mainspring.nodes
    WHERE term = $2::bigint AND id = $3::text AND alive FOR NO KEY UPDATE
),
last AS MATERIALIZED (
    SELECT counter FROM mainspring.beats WHERE term = $2 ORDER BY counter DESC LIMIT 1
),
added AS (
    INSERT INTO mainspring.beats (term, counter, renewed_at)
    SELECT own.term, last.counter + 1, clock.now FROM own CROSS JOIN last CROSS JOIN clock
    ON CONFLICT (term, counter) DO NOTHING
),
removed AS (
    DELETE FROM mainspring.beats
    WHERE term = $2 AND counter = (SELECT counter FROM last) AND EXISTS (SELECT FROM own)
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
            present.term, present.counter, true, present.joined_at, present.renewed_at,
            CASE WHEN known.revision IS DISTINCT FROM present.revision THEN present.record END,
            present.running, present.revision
        )
        FROM (
            SELECT
                own.term, last.counter + 1 AS counter, own.joined_at, clock.now AS renewed_at, own.record, own.revision,
                (SELECT count(*) FROM held) AS running
            FROM own CROSS JOIN last CROSS JOIN clock
            UNION ALL
            SELECT nodes.term, beat.counter, nodes.joined_at, beat.renewed_at, nodes.record, nodes.revision, 0
            FROM mainspring.nodes AS nodes CROSS JOIN LATERAL (
                SELECT counter, renewed_at FROM mainspring.beats
                WHERE beats.term = nodes.term ORDER BY counter DESC LIMIT 1
            ) AS beat
            WHERE nodes.alive AND nodes.term <> $2
        ) AS present
        LEFT JOIN unnest($5::bigint[], $6::bigint[]) AS known (term, revision) ON known.term = present.term
        ORDER BY present.joined_at, present.term
    )
FROM own
