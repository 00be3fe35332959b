-- Gives keys that are held to new owners. One whose owner was cancelled for it has gone with that. Index: unique_keys_pkey.
INSERT INTO mainspring.unique_keys (task, key, job, taken_until)
SELECT task, key, job, enqueued_at + period
FROM unnest($1::text[], $2::bytea[], $3::uuid[], $4::interval[], $5::timestamptz[])
    AS new (task, key, job, period, enqueued_at)
ON CONFLICT (task, key) DO UPDATE SET job = excluded.job, taken_until = excluded.taken_until
