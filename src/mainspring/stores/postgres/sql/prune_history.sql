-- Deletes expired jobs that are in no day's partition, and returns how many. Skips locked rows, such as jobs that an
-- operator is changing. Indexes: history_rest_by_time, history_long_by_time.
WITH rest AS (
    DELETE FROM mainspring.history_rest WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM mainspring.history_rest WHERE keep_until <= coalesce($1::timestamptz, statement_timestamp())
        ORDER BY keep_until LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
),
long AS (
    DELETE FROM mainspring.history_long WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM mainspring.history_long WHERE keep_until <= coalesce($1::timestamptz, statement_timestamp())
        ORDER BY keep_until LIMIT $2::bigint - (SELECT count(*) FROM rest)
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT (SELECT count(*) FROM rest) + (SELECT count(*) FROM long)
