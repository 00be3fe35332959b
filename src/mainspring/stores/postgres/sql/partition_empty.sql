-- Deletes some rows of one day of history, for those who may not drop its table; says how many. Index: history_by_id of
-- that day: what was deleted before is stepped over there, and is not even seen once it is known to be gone for good.
WITH gone AS (
    DELETE FROM mainspring.history
    WHERE CASE WHEN keep_until - finished_at > interval '14 days' THEN 'infinity'::timestamptz ELSE keep_until END >= $1::timestamptz
        AND CASE WHEN keep_until - finished_at > interval '14 days' THEN 'infinity'::timestamptz ELSE keep_until END < $2::timestamptz
        AND id = ANY (ARRAY(
            SELECT id FROM mainspring.history
            WHERE CASE WHEN keep_until - finished_at > interval '14 days' THEN 'infinity'::timestamptz ELSE keep_until END >= $1
                AND CASE WHEN keep_until - finished_at > interval '14 days' THEN 'infinity'::timestamptz ELSE keep_until END < $2
            ORDER BY id LIMIT $3::bigint
            FOR UPDATE SKIP LOCKED
        ))
    RETURNING 1
)
SELECT count(*) FROM gone
