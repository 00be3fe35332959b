-- Deletes dead letters that were resolved or discarded so long ago; says how many. Indexes: outbox_letters_done,
-- outbox_letters_pkey.
WITH gone AS (
    DELETE FROM mainspring.outbox_letters WHERE id = ANY (ARRAY(
        SELECT id FROM mainspring.outbox_letters
        WHERE completed_at <= coalesce($1::timestamptz, statement_timestamp()) - $2::interval
        ORDER BY completed_at, id LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
