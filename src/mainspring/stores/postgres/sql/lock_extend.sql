-- Keeps a lock for longer, under its exact term. Index: locks_pkey.
UPDATE mainspring.locks SET
    expires_at = coalesce($1::timestamptz, statement_timestamp()) + $5::interval,
    granted_at = coalesce($1, statement_timestamp())
WHERE name = $2::text AND holder = $3::text AND term = $4::bigint
RETURNING expires_at
