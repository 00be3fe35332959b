-- Hides the finished jobs of all days that are past their time, by one instant; they go when their day is dropped.
-- Moves only where there is a day to hide, once in a minute at most, however many nodes prune: every claim reads the row,
-- and while an old snapshot is held open all versions of it stay. Moves back if it is ahead, after the
-- database's clock was ahead and has been set. Skipped while another transaction changes the rules, to avoid a deadlock.
-- Index: rules_pkey.
UPDATE mainspring.rules SET pruned_until = coalesce($1::timestamptz, statement_timestamp())
WHERE single = (
    SELECT single FROM mainspring.rules
    WHERE single AND (
        pruned_until > coalesce($1, statement_timestamp())
        OR (pruned_until <= coalesce($1, statement_timestamp()) - interval '1 minute' AND EXISTS (
            SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
            CROSS JOIN LATERAL (
                SELECT CASE WHEN relname ~ '^history_\d{8}$' THEN to_date(right(relname, 8), 'YYYYMMDD')::timestamp END
            ) AS days (day)
            WHERE inhparent = 'mainspring.history'::regclass
                AND day AT TIME ZONE 'UTC' <= coalesce($1, statement_timestamp())
                AND (day + interval '1 day') AT TIME ZONE 'UTC' > pruned_until
        ))
    )
    FOR UPDATE SKIP LOCKED
)
