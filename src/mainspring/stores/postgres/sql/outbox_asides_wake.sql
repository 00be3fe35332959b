-- Has the first message of each of these keys delivered now, if nothing says when; and those of these that have no key.
-- Indexes: outboxes_name_key, outbox_asides_by_key, outbox_asides_pkey.
UPDATE mainspring.outbox_asides AS asides SET retry_at = coalesce($1::timestamptz, statement_timestamp())
FROM (
    SELECT DISTINCT first.line, first.seq
    FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bytea[]) AS one (outbox, partition, seq, digest)
    JOIN mainspring.outboxes ON outboxes.name = one.outbox
    CROSS JOIN LATERAL (
        (
            SELECT line, seq FROM mainspring.outbox_asides AS keyed
            WHERE keyed.line = outboxes.id * 64 + one.partition AND keyed.digest = one.digest ORDER BY keyed.seq LIMIT 1
        )
        UNION ALL
        SELECT outboxes.id * 64 + one.partition, one.seq WHERE one.digest IS NULL
    ) AS first
) AS first
WHERE asides.line = ANY (ARRAY[first.line]) AND asides.seq = first.seq AND asides.retry_at IS NULL
