-- Messages of a line that were set aside and may be delivered now, the first of each key, the longest due first.
-- Indexes: outboxes_name_key, outbox_asides_due, outbox_asides_by_key.
SELECT
    asides.seq, asides.number, asides.published_at, asides.key, asides.type, asides.traceparent, asides.payload,
    asides.attempts, asides.retry_at, asides.error
FROM mainspring.outboxes CROSS JOIN LATERAL (
    SELECT * FROM mainspring.outbox_asides AS due
    WHERE due.line = outboxes.id * 64 + $3::integer AND due.retry_at <= coalesce($1::timestamptz, statement_timestamp())
        AND (
            SELECT true FROM mainspring.outbox_asides AS before
            WHERE before.line = due.line AND before.digest = due.digest AND before.seq < due.seq
            LIMIT 1
        ) IS NULL
    ORDER BY due.retry_at, due.seq LIMIT $4::integer
) AS asides
WHERE outboxes.name = $2::text
ORDER BY asides.retry_at, asides.seq
