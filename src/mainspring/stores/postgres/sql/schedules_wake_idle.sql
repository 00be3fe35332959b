-- Has schedules looked at that wait for the end of a run, and hold none that could end: at once; in a second, if there is
-- one that somebody else has in hand, for he may be about to end it. Each was written by this transaction, at the revision
-- given. One that was looked at again meanwhile is at another. Indexes: positions_pkey, runs_open.
UPDATE mainspring.positions SET
    next_at = coalesce($1::timestamptz, statement_timestamp())
        + CASE WHEN (
            SELECT id FROM mainspring.runs WHERE runs.schedule = idle.schedule AND is_open ORDER BY id DESC LIMIT 1
        ) IS NULL THEN interval '0' ELSE interval '1 second' END
FROM unnest($2::text[], $3::bigint[]) AS idle (schedule, revision)
WHERE positions.schedule = ANY (ARRAY[idle.schedule]) AND positions.revision = idle.revision
