-- Deletes locks that expired or were resigned a day ago, and says how many. There are few. Index: locks_pkey.
WITH gone AS (
    DELETE FROM mainspring.locks WHERE name = ANY (ARRAY(
        SELECT name FROM mainspring.locks
        WHERE expires_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
        LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING term
)
SELECT count(*) FILTER (WHERE term > 0) FROM gone
