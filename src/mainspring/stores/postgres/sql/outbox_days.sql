-- The days of the log, the oldest first: when each begins, whether it has passed, whether we may drop its table, and whether
-- there is anything in it.
SELECT
    day, (day + 1)::timestamp AT TIME ZONE 'UTC' <= coalesce($1::timestamptz, statement_timestamp()), may_drop,
    pg_relation_size(oid) > 0
FROM (
    SELECT
        CASE WHEN relname ~ '^outbox_messages_\d{8}$' THEN to_date(right(relname, 8), 'YYYYMMDD') END AS day,
        pg_has_role(relowner, 'USAGE') AS may_drop, pg_class.oid
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'mainspring.outbox_messages'::regclass
) AS days
WHERE day IS NOT NULL
ORDER BY day
