-- Gives a lock to a holder. Index: primary key.
INSERT INTO mainspring_locks (name, holder, term, expires_at, granted_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, term = excluded.term, expires_at = excluded.expires_at, granted_at = excluded.granted_at
