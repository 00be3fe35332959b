-- The tables of finished jobs: which day each is for (NULL: what no day was made for), its size, how many rows it has by
-- the last count, and which day it is today.
SELECT
    CASE WHEN relname ~ '^history_\d{8}$' THEN to_date(right(relname, 8), 'YYYYMMDD') END AS day,
    pg_total_relation_size(pg_class.oid),
    greatest(reltuples::bigint, pg_stat_get_live_tuples(pg_class.oid)),
    (statement_timestamp() AT TIME ZONE 'UTC')::date
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent = 'mainspring.history'::regclass
ORDER BY day
