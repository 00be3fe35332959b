-- Closes runs that were open for bodies which have ended; says of which schedules, and when. Indexes: runs_lingering,
-- runs_pkey, places_by_job.
UPDATE mainspring.runs SET is_open = false
FROM (
    SELECT id FROM mainspring.runs
    WHERE is_open AND state IS NOT NULL
        AND NOT EXISTS (SELECT FROM mainspring.places WHERE places.job = runs.id)
    ORDER BY id LIMIT $2::bigint
    FOR UPDATE
) AS lingering
WHERE runs.id = lingering.id
RETURNING runs.schedule, coalesce($1::timestamptz, statement_timestamp())
