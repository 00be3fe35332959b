-- Locks that expired long ago.
DELETE FROM mainspring_locks WHERE name IN (SELECT name FROM mainspring_locks WHERE expires_at <= ? LIMIT ?)
