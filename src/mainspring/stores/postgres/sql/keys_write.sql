-- Writes down what the rates of keys have spent, and when their parked jobs are to be looked at. Index: keys_pkey.
INSERT INTO mainspring.keys AS old (task, key, spent_until, look_at)
SELECT $1::text, key, spent_until, look_at
FROM unnest($2::bytea[], $3::timestamptz[], $4::timestamptz[]) AS new (key, spent_until, look_at)
ON CONFLICT (task, key) DO UPDATE SET
    spent_until = excluded.spent_until, look_at = least(old.look_at, excluded.look_at)
