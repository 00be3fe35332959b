-- Gives all that is new in some lines, which are held, its `seq`: see outbox_look.sql. Its snapshot has to be taken once
-- they are held, so it is a statement of its own, in a transaction that is READ COMMITTED. Returns the last one of each,
-- which somebody else may have given since it was looked.
-- Indexes: outbox_chunks_pkey, outbox_messages_by_xid.
WITH present AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, (SELECT system_identifier FROM pg_control_system()) AS cluster
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
        held.line, coalesce(head.last, 0) AS last, head.snapshot, coalesce(pg_snapshot_xmax(head.snapshot), '0') AS xmax
    FROM present CROSS JOIN unnest($1::bigint[]) AS held (line)
    LEFT JOIN LATERAL (
        SELECT last, snapshot, cluster FROM mainspring.outbox_chunks AS chunks
        WHERE chunks.line = held.line ORDER BY chunks.last DESC LIMIT 1
    ) AS head ON true
    WHERE head.cluster IS NULL
        OR (head.cluster = present.cluster AND pg_snapshot_xmax(head.snapshot) <= pg_snapshot_xmax(present.snapshot))
),
news AS (
    SELECT lines.line, lines.last, late.number, late.xid, late.published_at
    FROM lines CROSS JOIN LATERAL pg_snapshot_xip(lines.snapshot) AS xip (xid) CROSS JOIN present
    CROSS JOIN LATERAL (
        SELECT number, xid, published_at FROM mainspring.outbox_messages AS messages
        WHERE messages.line = lines.line AND messages.xid = xip.xid OFFSET 0
    ) AS late
    WHERE pg_visible_in_snapshot(xip.xid, present.snapshot)
    UNION ALL
    SELECT lines.line, lines.last, later.number, later.xid, later.published_at
    FROM lines JOIN gaps ON gaps.below > lines.xmax
    CROSS JOIN LATERAL (
        SELECT number, xid, published_at FROM mainspring.outbox_messages AS messages
        WHERE messages.line = lines.line AND messages.xid >= lines.xmax AND messages.xid > gaps.above
            AND messages.xid < gaps.below
        OFFSET 0
    ) AS later
),
placed AS (
    SELECT news.*, row_number() OVER (PARTITION BY line ORDER BY number) AS place FROM news
),
added AS (
    INSERT INTO mainspring.outbox_chunks (line, first, last, numbers, xids, since, until, snapshot, cluster)
    SELECT chunks.*, present.snapshot, present.cluster
    FROM (
        SELECT
            line, last + min(place), last + max(place), array_agg(number ORDER BY place), array_agg(xid ORDER BY place),
            min(published_at), max(published_at)
        FROM placed GROUP BY line, last, (place - 1) / $2::integer
    ) AS chunks CROSS JOIN present
    RETURNING line, last
)
SELECT line, max(last) FROM (SELECT line, last FROM lines UNION ALL SELECT line, last FROM added) AS lasts GROUP BY line
