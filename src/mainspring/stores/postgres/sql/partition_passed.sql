-- The days of history of which nothing can be seen any more, the oldest first, and whether we may drop their tables.
SELECT day, may_drop
FROM (
    SELECT
        CASE WHEN relname ~ '^history_\d{8}$' THEN to_date(right(relname, 8), 'YYYYMMDD') END AS day,
        pg_has_role(relowner, 'USAGE') AS may_drop
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'mainspring.history'::regclass
) AS days
WHERE (day + 1)::timestamp AT TIME ZONE 'UTC' <= (SELECT pruned_until FROM mainspring.rules)
ORDER BY day
