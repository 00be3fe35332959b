-- Takes messages that are set aside no longer; returns what is known of their keys. Indexes: outboxes_name_key,
-- outbox_asides_pkey.
DELETE FROM mainspring.outbox_asides AS asides
USING (
    SELECT back.*, outboxes.id * 64 + back.partition AS line
    FROM unnest($1::text[], $2::integer[], $3::bigint[]) AS back (outbox, partition, seq)
    JOIN mainspring.outboxes ON outboxes.name = back.outbox
    OFFSET 0
) AS back
WHERE asides.line = ANY (ARRAY[back.line]) AND asides.seq = back.seq
RETURNING back.outbox, back.partition, back.seq, asides.digest
