-- Writes dead letters. Index: outboxes_name_key.
INSERT INTO mainspring.outbox_letters (
    line, seq, number, published_at, key, type, traceparent, payload, attempts, error, state, failed_at
)
SELECT
    outboxes.id * 64 + new.partition, new.seq, new.number, new.published_at, new.key, new.type, new.traceparent,
    new.payload, new.attempts, new.error, 'pending', coalesce($1::timestamptz, clock_timestamp())
FROM unnest(
    $2::text[], $3::integer[], $4::bigint[], $5::bigint[], $6::timestamptz[], $7::bytea[], $8::text[], $9::text[],
    $10::bytea[], $11::integer[], $12::bytea[]
) WITH ORDINALITY AS new (
    outbox, partition, seq, number, published_at, key, type, traceparent, payload, attempts, error, place
)
JOIN mainspring.outboxes ON outboxes.name = new.outbox
ORDER BY new.place
