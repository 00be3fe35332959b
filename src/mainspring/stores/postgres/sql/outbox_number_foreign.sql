-- Gives messages of one line, which is held, their `seq` in a cluster where the last snapshot means nothing, as after a dump
-- that was played into another server: all that are in no chunk. Transactions that are not over yet in this cluster become
-- none at all: once it has come to the same numbers, what was played in must not seem to be new. Reads all of the line; it
-- is done once, since the last chunk says so then. Returns the last one.
-- Indexes: outbox_chunks_pkey, outbox_messages_by_xid.
WITH present AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot, (SELECT system_identifier FROM pg_control_system()) AS cluster
),
head AS MATERIALIZED (
    SELECT coalesce(max(last), 0) AS last FROM mainspring.outbox_chunks WHERE line = $1::bigint
),
renewed AS (
    UPDATE mainspring.outbox_chunks AS chunks
    SET snapshot = present.snapshot, cluster = present.cluster, xids = ARRAY(
        SELECT CASE WHEN pg_visible_in_snapshot(xid, present.snapshot) THEN xid ELSE '0' END
        FROM unnest(chunks.xids) WITH ORDINALITY AS one (xid, place) ORDER BY place
    )
    FROM present WHERE chunks.line = $1
),
taken_back AS (
    UPDATE mainspring.outbox_messages AS messages SET xid = '0'
    FROM present WHERE messages.line = $1 AND NOT pg_visible_in_snapshot(messages.xid, present.snapshot)
),
placed AS (
    SELECT
        number, CASE WHEN pg_visible_in_snapshot(xid, present.snapshot) THEN xid ELSE '0' END AS xid, published_at,
        row_number() OVER (ORDER BY number) AS place
    FROM present CROSS JOIN mainspring.outbox_messages AS messages
    WHERE line = $1 AND number NOT IN (
        SELECT unnest(numbers) FROM mainspring.outbox_chunks AS chunks WHERE chunks.line = $1
    )
),
added AS (
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
    RETURNING last
)
SELECT $1::bigint, max(last) FROM (SELECT last FROM head UNION ALL SELECT last FROM added) AS lasts
