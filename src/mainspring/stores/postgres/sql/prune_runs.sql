-- Deletes runs that are not open and past their time, and says how many. Waits for nobody. Index: runs_by_time.
WITH gone AS (
    DELETE FROM mainspring.runs WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM mainspring.runs
        WHERE NOT is_open
            AND keep_until <= coalesce($1::timestamptz, statement_timestamp())
        ORDER BY keep_until LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
