-- The days of the log that have no table of their own, from today on, the nearest first. Nothing where we may not make
-- them; not those whose rows have gone to `outbox_messages_rest` already. Index: outbox_messages_rest_by_day.
SELECT days.day::date
FROM (
    SELECT date_trunc('day', coalesce($1::timestamptz, statement_timestamp()) AT TIME ZONE 'UTC') AS day
) AS today
CROSS JOIN generate_series(today.day, today.day + make_interval(days => $2::integer), interval '1 day') AS days (day)
WHERE (
        SELECT pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')
        FROM pg_class WHERE oid = 'mainspring.outbox_messages'::regclass
    )
    AND NOT EXISTS (
        SELECT FROM pg_class AS tables
        WHERE tables.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'mainspring.outbox_messages'::regclass)
            AND tables.relname = 'outbox_messages_' || to_char(days.day, 'YYYYMMDD')
    )
    AND (
        SELECT true FROM mainspring.outbox_messages_rest
        WHERE (published_at AT TIME ZONE 'UTC')::date = days.day::date LIMIT 1
    ) IS NULL
ORDER BY days.day LIMIT $3::integer
