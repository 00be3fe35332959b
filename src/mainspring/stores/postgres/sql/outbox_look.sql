-- How the lines of some outboxes stand, in order: the last number that was given, whether there are messages without one,
-- the stand and whether its holder is alive, when the first message that was set aside is due. Locks nothing.
--
-- New is what this snapshot shows and the one of the last chunk did not: the messages of transactions that were under way
-- then and are over now, and of those that began later, but for those that are under way now, of which not even an entry
-- of the index is looked at. What was rolled back is stepped over once, the index is told. In another cluster a snapshot
-- means nothing: there everything may be new. Another cluster has another system identifier, or, as a physical copy that went
-- on by itself and was fed logically, lower transaction ids: in one history the xmax of snapshots never falls. Where there
-- is none yet, only restored messages can be ahead of all transactions. Indexes: outboxes_name_key, outbox_chunks_pkey, outbox_messages_by_xid,
-- outbox_stands_pkey, outbox_asides_due, outbox_asides_by_key.
-- The last columns are a text that names the chunk, and whether all transactions that were under way then have ended: if
-- there are no new messages either, none can follow from them, and the caller passes the text to the next look. Without it
-- an idle line would be searched for each of these transactions, in each day, at every look.
WITH present AS MATERIALIZED (
    SELECT
        pg_current_snapshot() AS snapshot, (SELECT system_identifier FROM pg_control_system()) AS cluster,
        coalesce($1::timestamptz, statement_timestamp()) AS now
),
gaps AS MATERIALIZED (
    SELECT edge AS above, lead(edge) OVER (ORDER BY edge) AS below
    FROM (
        SELECT '0'::xid8 FROM present UNION ALL SELECT pg_snapshot_xip(snapshot) FROM present
        UNION ALL SELECT pg_snapshot_xmax(snapshot) FROM present
    ) AS edges (edge)
),
lines AS MATERIALIZED (
    SELECT
        outboxes.name, places.partition, outboxes.id * 64 + places.partition AS line, head.last, head.snapshot,
        coalesce(
            head.cluster <> present.cluster OR pg_snapshot_xmax(head.snapshot) > pg_snapshot_xmax(present.snapshot),
            played_in.is_ahead, false
        ) AS is_foreign,
        format('%s %s %s', head.line, head.last, pg_snapshot_xmax(head.snapshot)) AS chunk
    FROM present CROSS JOIN mainspring.outboxes
    CROSS JOIN LATERAL generate_series(0, outboxes.partitions - 1) AS places (partition)
    LEFT JOIN LATERAL (
        SELECT line, last, snapshot, cluster FROM mainspring.outbox_chunks AS chunks
        WHERE chunks.line = outboxes.id * 64 + places.partition ORDER BY chunks.last DESC LIMIT 1
    ) AS head ON true
    LEFT JOIN LATERAL (
        SELECT true AS is_ahead FROM mainspring.outbox_messages AS messages
        WHERE head.last IS NULL AND messages.line = outboxes.id * 64 + places.partition
            AND messages.xid >= pg_snapshot_xmax(present.snapshot)
        LIMIT 1
    ) AS played_in ON true
    WHERE outboxes.name = ANY ($2::text[])
)
SELECT
    present.now, lines.name, lines.partition, lines.line, coalesce(lines.last, 0),
    lines.is_foreign,
    lines.is_foreign
    OR lines.chunk <> ALL ($3::text[]) AND EXISTS (
        SELECT FROM pg_snapshot_xip(lines.snapshot) AS xip (xid) CROSS JOIN LATERAL (
            SELECT FROM mainspring.outbox_messages AS messages
            WHERE messages.line = lines.line AND messages.xid = xip.xid LIMIT 1
        ) AS late
        WHERE pg_visible_in_snapshot(xip.xid, present.snapshot)
    )
    OR EXISTS (
        SELECT FROM gaps CROSS JOIN LATERAL (
            SELECT FROM mainspring.outbox_messages AS messages
            WHERE messages.line = lines.line AND messages.xid >= coalesce(pg_snapshot_xmax(lines.snapshot), '0')
                AND messages.xid > gaps.above AND messages.xid < gaps.below
            LIMIT 1
        ) AS later
        WHERE gaps.below > coalesce(pg_snapshot_xmax(lines.snapshot), '0')
    ) AS has_news,
    stand.revision, stand.cursor, stand.holder, stand.given, stand.width, stand.attempts, stand.retry_at, stand.error,
    EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = stand.holder AND nodes.alive) AS is_held,
    (
        SELECT retry_at FROM mainspring.outbox_asides AS asides
        WHERE asides.line = lines.line AND retry_at IS NOT NULL AND (
            SELECT true FROM mainspring.outbox_asides AS before
            WHERE before.line = asides.line AND before.digest = asides.digest AND before.seq < asides.seq
            LIMIT 1
        ) IS NULL
        ORDER BY retry_at, seq LIMIT 1
    ) AS aside_at,
    lines.chunk,
    NOT EXISTS (
        SELECT FROM pg_snapshot_xip(lines.snapshot) AS xip (xid)
        WHERE NOT pg_visible_in_snapshot(xip.xid, present.snapshot)
    )
FROM present CROSS JOIN lines CROSS JOIN LATERAL (
    SELECT * FROM mainspring.outbox_stands AS stands
    WHERE stands.line = lines.line ORDER BY stands.revision DESC LIMIT 1
) AS stand
ORDER BY lines.name, lines.partition
