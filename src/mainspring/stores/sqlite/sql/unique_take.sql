-- Gives a unique key to a job. Index: primary key.
INSERT INTO mainspring_unique_keys (task, key, job, taken_until) VALUES (?, ?, ?, ?)
ON CONFLICT (task, key) DO UPDATE SET job = excluded.job, taken_until = excluded.taken_until
