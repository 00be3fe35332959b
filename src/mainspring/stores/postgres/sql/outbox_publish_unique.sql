-- As outbox_publish.sql, for messages that have a text by which they are told from others; no text comes twice among them.
-- Where one is known its message is not written: then the answer is that one's number, or NULL if it is only known to
-- somebody else who was at it at the same time. Waits for whoever has written the same text and not committed yet. Texts are
-- taken in their own order, so that two who want the same ones do not wait for each other.
-- Indexes: outboxes_name_key, outbox_texts_pkey.
WITH known AS MATERIALIZED (
    SELECT wanted.place, outboxes.id
    FROM unnest($2::text[], $3::integer[]) WITH ORDINALITY AS wanted (name, partitions, place)
    JOIN mainspring.outboxes ON outboxes.name = wanted.name AND outboxes.partitions = wanted.partitions
),
drawn AS MATERIALIZED (
    SELECT ready.*, nextval('mainspring.outbox_numbers') AS number
    FROM (
        SELECT
            new.place, known.id AS outbox, known.id * 64 + new.partition AS line, new.key, new.type, new.traceparent,
            new.payload, new.digest, coalesce($1::timestamptz, clock_timestamp()) AS published_at
        FROM unnest($4::integer[], $5::integer[], $6::bytea[], $7::text[], $8::text[], $9::bytea[], $10::bytea[])
            WITH ORDINALITY AS new (outbox, partition, key, type, traceparent, payload, digest, place)
        JOIN known ON known.place = new.outbox
        WHERE (SELECT count(*) FROM known) = cardinality($2)
        ORDER BY new.place
    ) AS ready
),
taken AS (
    INSERT INTO mainspring.outbox_texts (outbox, digest, line, number, published_at)
    SELECT outbox, digest, line, number, published_at FROM drawn WHERE digest IS NOT NULL ORDER BY outbox, digest
    ON CONFLICT (outbox, digest) DO NOTHING
    RETURNING number
),
written AS (
    INSERT INTO mainspring.outbox_messages (line, number, published_at, key, type, traceparent, payload)
    SELECT line, number, published_at, key, type, traceparent, payload FROM drawn
    WHERE digest IS NULL OR number = ANY (ARRAY(SELECT number FROM taken))
    RETURNING number
)
SELECT drawn.place, coalesce(written.number, texts.number), written.number IS NOT NULL
FROM drawn
LEFT JOIN written USING (number)
LEFT JOIN LATERAL (
    SELECT number FROM mainspring.outbox_texts WHERE outbox = drawn.outbox AND digest = drawn.digest OFFSET 0
) AS texts ON true
ORDER BY drawn.place
