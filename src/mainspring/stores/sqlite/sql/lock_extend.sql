-- Keeps a lock for longer, under its exact term. Index: primary key.
UPDATE mainspring_locks SET expires_at = ?, granted_at = ? WHERE name = ? AND holder = ? AND term = ?
