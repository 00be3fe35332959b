-- Holds these keys until the transaction ends, made for the given jobs where nobody has them, and says who has
-- them. Waits for whoever holds one. Who has a key may be told only after this: what was seen before may be over.
-- Index: unique_keys_pkey.
INSERT INTO mainspring.unique_keys AS held (task, key, job, taken_until)
SELECT task, key, job, NULL FROM unnest($1::text[], $2::bytea[], $3::uuid[]) AS new (task, key, job) ORDER BY task, key
ON CONFLICT (task, key) DO UPDATE SET job = held.job
RETURNING task, key, job, taken_until
