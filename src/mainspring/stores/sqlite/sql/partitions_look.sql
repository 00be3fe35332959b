-- How the partitions of an outbox stand, whether their holders are alive, and when the first of what is set aside is due:
-- of each key only its first one counts. Indexes: outboxes_by_name, primary key, asides_by_time, asides_by_key.
SELECT partitions.id & 63, partitions.last, partitions.revision, partitions.cursor, partitions.holder, partitions.given,
    partitions.width, partitions.attempts, partitions.retry_at, partitions.error,
    EXISTS (SELECT 1 FROM mainspring_nodes AS nodes WHERE nodes.id = partitions.holder AND nodes.alive = 1),
    (
        SELECT retry_at FROM mainspring_asides AS asides INDEXED BY mainspring_asides_by_time
        WHERE asides.partition = partitions.id AND retry_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM mainspring_asides AS earlier INDEXED BY mainspring_asides_by_key
            WHERE earlier.partition = asides.partition AND earlier.key = asides.key AND earlier.number < asides.number
        )
        ORDER BY retry_at, asides.number LIMIT 1
    )
FROM mainspring_outboxes AS outboxes
JOIN mainspring_partitions AS partitions ON partitions.id BETWEEN outboxes.id * 64 AND outboxes.id * 64 + 63
WHERE outboxes.name = ?
ORDER BY partitions.id
