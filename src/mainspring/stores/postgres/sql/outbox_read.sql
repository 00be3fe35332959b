-- Messages of a line behind a `seq`, in order; of those that are gone from the log nothing but their `seq`. Where even that
-- is gone, it begins with the first that is there. Indexes: outboxes_name_key, outbox_chunks_pkey, outbox_messages_by_xid.
WITH start AS MATERIALIZED (
    SELECT chunks.line, greatest($3::bigint, chunks.first - 1) AS after
    FROM mainspring.outboxes CROSS JOIN LATERAL (
        SELECT line, first FROM mainspring.outbox_chunks AS chunks
        WHERE chunks.line = outboxes.id * 64 + $2::integer AND chunks.last > $3 ORDER BY chunks.last LIMIT 1
    ) AS chunks
    WHERE outboxes.name = $1::text AND $2 BETWEEN 0 AND outboxes.partitions - 1
)
SELECT
    greatest(start.after, chunks.first - 1) + places.place, places.number, messages.published_at, messages.key,
    messages.type, messages.traceparent, messages.payload
FROM start
CROSS JOIN LATERAL (
    SELECT * FROM mainspring.outbox_chunks AS chunks
    WHERE chunks.line = start.line AND chunks.last > start.after ORDER BY chunks.last LIMIT $4::integer
) AS chunks
CROSS JOIN LATERAL unnest(
    chunks.numbers[greatest(start.after - chunks.first + 2, 1)::integer:(start.after + $4 - chunks.first + 1)::integer],
    chunks.xids[greatest(start.after - chunks.first + 2, 1)::integer:(start.after + $4 - chunks.first + 1)::integer]
) WITH ORDINALITY AS places (number, xid, place)
LEFT JOIN LATERAL (
    SELECT * FROM mainspring.outbox_messages AS messages
    WHERE messages.line = start.line AND messages.xid = places.xid AND messages.number = places.number
        AND messages.published_at >= chunks.since AND messages.published_at <= chunks.until
    OFFSET 0
) AS messages ON true
WHERE chunks.first <= start.after + $4
ORDER BY chunks.last, places.place
