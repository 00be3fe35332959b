-- A lock. Index: primary key.
SELECT holder, term, expires_at, granted_at FROM mainspring_locks WHERE name = ?
