-- What keeps dead rows of this database from being cleared away, for longer than so many seconds: open transactions and
-- prepared ones, with the seconds, the longest first; and slots of standbys that are gone, since nobody knows when.
-- Sessions of other roles are seen by members of pg_read_all_stats only; the last column says whether we are one.
WITH held AS (
    SELECT format('process %s', pid) AS who, usename::text AS role, application_name AS program, state,
        extract(epoch FROM clock_timestamp() - xact_start)::double precision AS seconds, pid
    FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    UNION ALL
    SELECT format('prepared transaction %L', gid), owner::text, '', 'prepared',
        extract(epoch FROM clock_timestamp() - prepared)::double precision, NULL
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT format('replication slot %I', slot_name), '', '', 'without its standby', NULL, NULL
    FROM pg_replication_slots WHERE xmin IS NOT NULL AND NOT active
)
SELECT who, role, program, state, seconds, pid, pg_has_role('pg_read_all_stats', 'USAGE')
FROM (SELECT) AS always LEFT JOIN held ON seconds IS NULL OR seconds > $1::double precision
ORDER BY seconds DESC NULLS LAST
