-- How the keys of a task stand: how many places are taken, and what their rates have spent. Indexes: places_pkey, keys_pkey.
SELECT
    wanted.key,
    (SELECT count(*) FROM mainspring.places WHERE scope = 'key' AND name = $1::text AND places.key = wanted.key),
    (SELECT spent_until FROM mainspring.keys WHERE task = $1 AND keys.key = wanted.key)
FROM unnest($2::bytea[]) AS wanted (key)
