-- Keeps places for the bodies of attempts that have ended, taken before or not, at gates that are yet to come too.
-- Index: places_pkey.
INSERT INTO mainspring.places (scope, name, key, job, lease, node, kept)
SELECT *, true FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[], $6::text[])
ON CONFLICT (scope, name, key, job, lease) DO UPDATE SET kept = true
