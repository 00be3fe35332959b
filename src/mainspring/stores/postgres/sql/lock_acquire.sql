-- Gives a lock to a holder if it is free, expired or the holder's own; nothing else. Who meets another waits for it and
-- then decides on what that one has left. A new term is drawn while the row is held, so that it never falls; that is
-- also why a lock that was resigned stays here for a while, its term negative. Index: locks_pkey.
INSERT INTO mainspring.locks AS locks (name, holder, term, expires_at)
VALUES (
    $2::text, $3::text, nextval('mainspring.lock_terms'),
    coalesce($1::timestamptz, statement_timestamp()) + $4::interval
)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    term = CASE
        WHEN locks.holder = excluded.holder AND locks.term > 0 THEN locks.term
        ELSE nextval('mainspring.lock_terms')
    END,
    expires_at = CASE
        WHEN locks.holder = excluded.holder AND locks.term > 0 THEN greatest(locks.expires_at, excluded.expires_at)
        ELSE excluded.expires_at
    END
WHERE locks.expires_at <= coalesce($1, statement_timestamp()) OR (locks.holder = excluded.holder AND locks.term > 0)
RETURNING term, expires_at
