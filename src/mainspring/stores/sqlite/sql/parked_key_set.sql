-- The lane and key of parked jobs, and when the rate of the key opens. Index: primary key.
INSERT INTO mainspring_parked_keys (task, key, lane, opens_at) VALUES (?, ?, ?, ?)
ON CONFLICT (task, key, lane) DO UPDATE SET opens_at = excluded.opens_at
