-- Deletes orders that were given a day ago, and says how many; ids grow with the time they were given. Index:
-- orders_pkey.
WITH gone AS (
    DELETE FROM mainspring.orders WHERE id = ANY (ARRAY(
        SELECT id FROM mainspring.orders
        WHERE given_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
        ORDER BY id LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
