-- Dead letters whose reprocessing should have ended, by deadline. Index: dead_letters_by_deadline.
SELECT id, (SELECT name FROM mainspring_outboxes AS outboxes WHERE outboxes.id = letters.outbox), number, published_at, type, key,
    traceparent, payload, state, attempts, error, failed_at, term, deadline, completed_at
FROM mainspring_dead_letters AS letters INDEXED BY mainspring_dead_letters_by_deadline
WHERE deadline <= :now AND state = 'reprocessing'
    AND (:outbox IS NULL OR letters.outbox = :outbox)
    AND (:partition IS NULL OR number >> 40 & 63 = :partition)
    AND (:type IS NULL OR type = :type)
    AND (:key IS NULL OR key = :key)
ORDER BY deadline, id LIMIT :limit
