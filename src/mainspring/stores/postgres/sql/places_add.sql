-- Takes places for jobs that pass gates. Index: places_pkey.
INSERT INTO mainspring.places (scope, name, key, job, lease, node)
SELECT scope, name, key, job, lease, $6::text
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::uuid[], $5::bigint[]) AS new (scope, name, key, job, lease)
ON CONFLICT (scope, name, key, job, lease) DO NOTHING
