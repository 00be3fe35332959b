-- How a server is set, as far as jobs depend on it, and how many of its connections are in use. Of views that everybody
-- may read.
SELECT
    current_setting('server_version_num')::integer,
    current_setting('server_version'),
    ARRAY(SELECT name FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes']) AS name
        WHERE current_setting(name) = 'off'),
    current_setting('synchronous_standby_names') <> '',
    current_setting('autovacuum') = 'on',
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        - coalesce(current_setting('reserved_connections', true)::integer, 0),
    (SELECT coalesce(sum(numbackends), 0)::integer FROM pg_stat_database)
