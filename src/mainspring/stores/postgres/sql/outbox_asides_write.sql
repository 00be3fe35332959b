-- Sets messages aside, over what is there of them. Indexes: outboxes_name_key, outbox_asides_pkey.
INSERT INTO mainspring.outbox_asides (
    line, seq, number, published_at, key, type, traceparent, payload, attempts, error, retry_at, digest
)
SELECT
    outboxes.id * 64 + new.partition, new.seq, new.number, new.published_at, new.key, new.type, new.traceparent,
    new.payload, new.attempts, new.error, new.retry_at, new.digest
FROM unnest(
    $1::text[], $2::integer[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::bytea[], $7::text[], $8::text[],
    $9::bytea[], $10::integer[], $11::bytea[], $12::timestamptz[], $13::bytea[]
) AS new (
    outbox, partition, seq, number, published_at, key, type, traceparent, payload, attempts, error, retry_at, digest
)
JOIN mainspring.outboxes ON outboxes.name = new.outbox
ON CONFLICT (line, seq) DO UPDATE
SET attempts = excluded.attempts, retry_at = excluded.retry_at, error = excluded.error
