-- Dead letters of an outbox and a state, newest failure first, behind one that was read. Index: dead_letters_by_outbox.
SELECT id, (SELECT name FROM mainspring_outboxes AS outboxes WHERE outboxes.id = letters.outbox), number, published_at, type, key,
    traceparent, payload, state, attempts, error, failed_at, term, deadline, completed_at
FROM mainspring_dead_letters AS letters INDEXED BY mainspring_dead_letters_by_outbox
WHERE letters.outbox = :outbox AND state = :state AND (failed_at, id) < (:failed_at, :id)
    AND (:partition IS NULL OR number >> 40 & 63 = :partition)
    AND (:type IS NULL OR type = :type)
    AND (:key IS NULL OR key = :key)
ORDER BY failed_at DESC, id DESC LIMIT :limit
