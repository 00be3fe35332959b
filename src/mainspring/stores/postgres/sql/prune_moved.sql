-- Forgets answers that nobody can ask for any more; ids grow with the time they were given. Index: moved_pkey.
DELETE FROM mainspring.moved WHERE id = ANY (ARRAY(
    SELECT id FROM mainspring.moved
    WHERE moved_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 hour'
    ORDER BY id LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
))
