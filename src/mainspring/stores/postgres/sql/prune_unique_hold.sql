-- Holds unique keys whose period has passed. Whether their jobs are active is asked by the next statement, which sees
-- what was committed before the keys were held. Index: unique_keys_by_time.
SELECT task, key FROM mainspring.unique_keys
WHERE taken_until <= coalesce($1::timestamptz, statement_timestamp())
ORDER BY taken_until LIMIT $2::bigint
FOR UPDATE SKIP LOCKED
