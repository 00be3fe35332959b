-- Makes an outbox; its partitions follow.
INSERT INTO mainspring_outboxes (name, partitions, created_at) VALUES (?, ?, ?) RETURNING id
