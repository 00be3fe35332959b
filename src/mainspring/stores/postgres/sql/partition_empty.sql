-- Deletes some rows of one day of history, for those who may not drop its table; says how many. Index: history_by_id of
-- that day: what was deleted before is stepped over there, and is not even seen once it is known to be gone for good.
WITH gone AS (
    DELETE FROM mainspring.history
    WHERE keep_until >= $1::timestamptz AND keep_until < $2::timestamptz AND id = ANY (ARRAY(
        SELECT id FROM mainspring.history WHERE keep_until >= $1 AND keep_until < $2 ORDER BY id LIMIT $3::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
