-- Begins to answer a call for another time; nothing if it has been answered. Waits for an earlier try that is about to be
-- committed: a client that was given up on may have said so. Index: moved_pkey.
INSERT INTO mainspring.moved (id, accepted, moved_at)
VALUES ($2::uuid, '{}', coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT (id) DO NOTHING
RETURNING id
