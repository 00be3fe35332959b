-- Limits a queue, in place of how it was limited by operators before. Index: primary key.
INSERT INTO mainspring_queue_limits (queue, concurrency, set_by) VALUES (?, ?, ?)
ON CONFLICT (queue) DO UPDATE SET concurrency = excluded.concurrency, set_by = excluded.set_by
