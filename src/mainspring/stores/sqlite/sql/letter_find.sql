-- One dead letter. Index: primary key.
SELECT id, (SELECT name FROM mainspring_outboxes AS outboxes WHERE outboxes.id = letters.outbox), number, published_at, type, key,
    traceparent, payload, state, attempts, error, failed_at, term, deadline, completed_at
FROM mainspring_dead_letters AS letters WHERE id = ?
