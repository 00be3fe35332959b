-- Deletes finished jobs that are past their time and of which no day was made, and says how many. Waits for nobody: one
-- that an operator is at is left for another time. Index: history_rest_by_time.
WITH gone AS (
    DELETE FROM mainspring.history_rest WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM mainspring.history_rest WHERE keep_until <= coalesce($1::timestamptz, statement_timestamp())
        ORDER BY keep_until LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
