-- Has the parked jobs of keys looked at then, or earlier if that was to be done anyway. Index: keys_pkey.
INSERT INTO mainspring.keys AS old (task, key, look_at)
SELECT $1::text, key, look_at FROM unnest($2::bytea[], $3::timestamptz[]) AS new (key, look_at)
ON CONFLICT (task, key) DO UPDATE SET look_at = least(old.look_at, excluded.look_at)
