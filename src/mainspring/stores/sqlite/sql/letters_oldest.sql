-- Dead letters of a state that are nobody's, oldest failure first. Index: dead_letters_by_time.
SELECT id, (SELECT name FROM mainspring_outboxes AS outboxes WHERE outboxes.id = letters.outbox), number, published_at, type, key,
    traceparent, payload, state, attempts, error, failed_at, term, deadline, completed_at
FROM mainspring_dead_letters AS letters INDEXED BY mainspring_dead_letters_by_time
WHERE state = :state AND (deadline IS NULL OR deadline <= :now)
    AND (:outbox IS NULL OR letters.outbox = :outbox)
    AND (:partition IS NULL OR number >> 40 & 63 = :partition)
    AND (:type IS NULL OR type = :type)
    AND (:key IS NULL OR key = :key)
ORDER BY failed_at, id LIMIT :limit
