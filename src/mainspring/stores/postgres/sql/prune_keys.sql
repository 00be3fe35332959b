-- Forgets accounts of keys that were paid for a day ago, or have none, and for which no job is parked: the same as
-- none. Indexes: keys_by_spent, jobs_parked.
DELETE FROM mainspring.keys WHERE ctid = ANY (
    ARRAY(
        SELECT ctid FROM mainspring.keys AS keys
        WHERE look_at IS NULL AND spent_until <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
            AND (
                SELECT true FROM mainspring.jobs
                WHERE parked AND jobs.task = keys.task AND jobs.key = keys.key LIMIT 1
            ) IS NULL
        ORDER BY spent_until LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ) || ARRAY(
        SELECT ctid FROM mainspring.keys AS keys
        WHERE look_at IS NULL AND spent_until IS NULL
            AND (
                SELECT true FROM mainspring.jobs
                WHERE parked AND jobs.task = keys.task AND jobs.key = keys.key LIMIT 1
            ) IS NULL
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
)
