-- Sets a message aside, or writes what it is like now. Index: primary key.
INSERT INTO mainspring_asides (
    number, partition, published_at, type, key, traceparent, payload, attempts, retry_at, error
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (number) DO UPDATE SET
    attempts = excluded.attempts, retry_at = excluded.retry_at, error = excluded.error
