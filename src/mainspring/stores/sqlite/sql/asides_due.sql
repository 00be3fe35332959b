-- What is set aside and due, the first of each key, the longest due first. Indexes: asides_by_time, asides_by_key.
SELECT number, published_at, type, key, traceparent, payload, attempts, retry_at, error
FROM mainspring_asides AS asides INDEXED BY mainspring_asides_by_time
WHERE partition = ? AND retry_at <= ? AND NOT EXISTS (
    SELECT 1 FROM mainspring_asides AS earlier INDEXED BY mainspring_asides_by_key
    WHERE earlier.partition = asides.partition AND earlier.key = asides.key AND earlier.number < asides.number
)
ORDER BY retry_at, number LIMIT ?
