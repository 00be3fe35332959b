-- Keeps what is answered to a call that moves schedules. Index: moved_pkey.
INSERT INTO mainspring.moved (id, accepted, moved_at)
VALUES ($2::uuid, $3::boolean[], coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT (id) DO UPDATE SET accepted = excluded.accepted
