-- Writes down what the rates of keys have spent; their gate is held by this transaction. Index: keys_pkey.
INSERT INTO mainspring.keys (task, key, spent_until)
SELECT $1::text, key, spent_until FROM unnest($2::bytea[], $3::timestamptz[]) AS new (key, spent_until)
ON CONFLICT (task, key) DO UPDATE SET spent_until = excluded.spent_until
