-- Gives messages of one line, which is held, their `seq` in a cluster where the last snapshot means nothing, as after a dump
-- that was played into another server: all that are in no chunk. Reads all of the line; it is done once, since the last
-- chunk says so then. Indexes: outbox_chunks_pkey, outbox_messages_by_xid.
WITH present AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, (SELECT system_identifier FROM pg_control_system()) AS cluster
),
head AS MATERIALIZED (
    SELECT last FROM mainspring.outbox_chunks WHERE line = $1::bigint ORDER BY last DESC LIMIT 1
),
renewed AS (
    UPDATE mainspring.outbox_chunks AS chunks SET snapshot = present.snapshot, cluster = present.cluster
    FROM present CROSS JOIN head WHERE chunks.line = $1 AND chunks.last = head.last
),
placed AS (
    SELECT number, xid, published_at, row_number() OVER (ORDER BY number) AS place
    FROM mainspring.outbox_messages AS messages
    WHERE line = $1 AND number NOT IN (
        SELECT unnest(numbers) FROM mainspring.outbox_chunks AS chunks WHERE chunks.line = $1
    )
)
INSERT INTO mainspring.outbox_chunks (line, first, last, numbers, xids, since, until, snapshot, cluster)
SELECT
    $1, head.last + chunks.first, head.last + chunks.last, chunks.numbers, chunks.xids, chunks.since, chunks.until,
    present.snapshot, present.cluster
FROM (
    SELECT
        min(place) AS first, max(place) AS last, array_agg(number ORDER BY place) AS numbers,
        array_agg(xid ORDER BY place) AS xids, min(published_at) AS since, max(published_at) AS until
    FROM placed GROUP BY (place - 1) / $2::integer
) AS chunks CROSS JOIN head CROSS JOIN present
RETURNING line, last
