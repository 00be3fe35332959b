-- Writes down what the rate of a key has spent. Index: primary key.
INSERT INTO mainspring_spent (task, key, spent_until) VALUES (?, ?, ?)
ON CONFLICT (task, key) DO UPDATE SET spent_until = excluded.spent_until
