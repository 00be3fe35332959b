-- The places of steps that an earlier try of the same call has written, whose answer was lost.
-- Indexes: outboxes_name_key, outbox_stands_pkey.
SELECT new.place
FROM unnest($2::text[], $3::integer[], $4::bigint[]) WITH ORDINALITY AS new (outbox, partition, before, place)
JOIN mainspring.outboxes ON outboxes.name = new.outbox
CROSS JOIN LATERAL (
    SELECT call FROM mainspring.outbox_stands AS stands
    WHERE stands.line = outboxes.id * 64 + new.partition AND stands.revision = new.before + 1 OFFSET 0
) AS stand
WHERE stand.call = $1::uuid
