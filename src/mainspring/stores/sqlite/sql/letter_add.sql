-- Adds a dead letter that is pending.
INSERT INTO mainspring_dead_letters (
    outbox, number, published_at, type, key, traceparent, payload, state, attempts, error, failed_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?)
