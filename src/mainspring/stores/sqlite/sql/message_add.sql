-- Adds a message under the next number of its partition.
INSERT INTO mainspring_messages (number, published_at, type, key, traceparent, payload) VALUES (?, ?, ?, ?, ?, ?)
