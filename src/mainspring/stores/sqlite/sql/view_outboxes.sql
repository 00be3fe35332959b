-- All outboxes by name, with what is kept of them. Walks over what is set aside, and over pending letters, in indexes.
-- Indexes: outboxes_by_name, dead_letters_by_outbox.
SELECT outboxes.name, outboxes.partitions, outboxes.created_at,
    (
        SELECT sum(partitions.last - partitions.cleared) FROM mainspring_partitions AS partitions
        WHERE partitions.id BETWEEN outboxes.id * 64 AND outboxes.id * 64 + 63
    ),
    (
        SELECT count(*) FROM mainspring_asides AS asides
        WHERE asides.number BETWEEN outboxes.id << 46 AND (outboxes.id + 1 << 46) - 1
    ),
    (
        SELECT count(*) FROM mainspring_dead_letters AS letters
        WHERE letters.outbox = outboxes.id AND letters.state = 'pending'
    )
FROM mainspring_outboxes AS outboxes INDEXED BY mainspring_outboxes_by_name
ORDER BY outboxes.name
