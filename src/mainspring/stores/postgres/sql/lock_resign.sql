-- Gives a lock up, under its exact term: it is free from now on, and no term of it is held. Index: locks_pkey.
UPDATE mainspring.locks SET expires_at = coalesce($1::timestamptz, statement_timestamp()), term = -term
WHERE name = $2::text AND holder = $3::text AND term = $4::bigint
RETURNING name
