-- Gives a lock to a holder if it is free, expired or the holder's own. Another holder's lock that was granted while the
-- clock was ahead (by more than $5) is made to expire one ttl from now, and is refused. Who meets another waits for it and
-- then decides on what that one has left. A new term is drawn while the row is held, so that it never falls; that is
-- also why a lock that was resigned stays here for a while, its term negative. Returns the row as it is then, which
-- has another holder if the lock was refused, or none. Index: locks_pkey.
INSERT INTO mainspring.locks AS locks (name, holder, term, expires_at, granted_at)
VALUES (
    $2::text, $3::text, nextval('mainspring.lock_terms'),
    coalesce($1::timestamptz, statement_timestamp()) + $4::interval, coalesce($1, statement_timestamp())
)
ON CONFLICT (name) DO UPDATE SET
    holder = CASE
        WHEN locks.term < 0 OR locks.expires_at <= excluded.granted_at THEN excluded.holder
        ELSE locks.holder
    END,
    term = CASE
        WHEN locks.holder = excluded.holder AND locks.term > 0 THEN locks.term
        WHEN locks.term < 0 OR locks.expires_at <= excluded.granted_at THEN nextval('mainspring.lock_terms')
        ELSE locks.term
    END,
    expires_at = CASE
        WHEN locks.term < 0 OR locks.expires_at <= excluded.granted_at THEN excluded.expires_at
        WHEN locks.granted_at > excluded.granted_at + $5::interval AND locks.granted_at < locks.expires_at
            THEN CASE
                WHEN locks.holder = excluded.holder THEN excluded.expires_at
                ELSE excluded.granted_at + (locks.expires_at - locks.granted_at)
            END
        ELSE greatest(locks.expires_at, excluded.expires_at)
    END,
    granted_at = excluded.granted_at
WHERE
    locks.term < 0
    OR locks.expires_at <= excluded.granted_at
    OR locks.holder = excluded.holder
    OR (locks.granted_at > excluded.granted_at + $5::interval AND locks.granted_at < locks.expires_at)
RETURNING term, expires_at, holder
