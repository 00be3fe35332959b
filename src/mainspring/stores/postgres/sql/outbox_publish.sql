-- Writes messages, in the order in which they are given, and returns their numbers, which grow. Nothing at all, if one of
-- their outboxes is not there or has another number of partitions. Index: outboxes_name_key.
WITH known AS MATERIALIZED (
    SELECT wanted.place, outboxes.id
    FROM unnest($2::text[], $3::integer[]) WITH ORDINALITY AS wanted (name, partitions, place)
    JOIN mainspring.outboxes ON outboxes.name = wanted.name AND outboxes.partitions = wanted.partitions
)
INSERT INTO mainspring.outbox_messages (line, number, published_at, key, type, traceparent, payload)
SELECT
    known.id * 64 + new.partition, nextval('mainspring.outbox_numbers'), coalesce($1::timestamptz, clock_timestamp()),
    new.key, new.type, new.traceparent, new.payload
FROM unnest($4::integer[], $5::integer[], $6::bytea[], $7::text[], $8::text[], $9::bytea[])
    WITH ORDINALITY AS new (outbox, partition, key, type, traceparent, payload, place)
JOIN known ON known.place = new.outbox
WHERE (SELECT count(*) FROM known) = cardinality($2)
ORDER BY new.place
RETURNING number
