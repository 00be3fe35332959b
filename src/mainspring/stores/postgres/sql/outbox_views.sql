-- All outboxes by name, with how much is kept of each. Walks along all lines. Indexes: outbox_chunks_pkey, outbox_asides_pkey,
-- outbox_letters_pending.
WITH kept AS MATERIALIZED (
    SELECT lines.outbox, sum(coalesce(head.last - low.first + 1, 0)) AS messages, sum(aside.count) AS aside
    FROM mainspring.outbox_lines AS lines
    LEFT JOIN LATERAL (
        SELECT last FROM mainspring.outbox_chunks AS chunks
        WHERE chunks.line = lines.line ORDER BY chunks.last DESC LIMIT 1
    ) AS head ON true
    LEFT JOIN LATERAL (
        SELECT first FROM mainspring.outbox_chunks AS chunks
        WHERE chunks.line = lines.line ORDER BY chunks.last LIMIT 1
    ) AS low ON true
    CROSS JOIN LATERAL (
        SELECT count(*) FROM mainspring.outbox_asides AS asides WHERE asides.line = lines.line
    ) AS aside
    GROUP BY lines.outbox
),
pending AS MATERIALIZED (
    SELECT line / 64 AS outbox, count(*) AS letters FROM mainspring.outbox_letters WHERE state = 'pending' GROUP BY 1
),
whole AS MATERIALIZED (
    SELECT sum(pg_total_relation_size(inhrelid)) AS bytes FROM pg_inherits
    WHERE inhparent = 'mainspring.outbox_messages'::regclass
)
SELECT
    outboxes.name, outboxes.partitions, outboxes.created_at, coalesce(kept.messages, 0)::bigint,
    (whole.bytes * coalesce(kept.messages, 0) / greatest((SELECT sum(messages) FROM kept), 1))::bigint,
    coalesce(kept.aside, 0)::bigint, coalesce(pending.letters, 0)
FROM mainspring.outboxes CROSS JOIN whole
LEFT JOIN kept ON kept.outbox = outboxes.id
LEFT JOIN pending ON pending.outbox = outboxes.id
ORDER BY outboxes.name
