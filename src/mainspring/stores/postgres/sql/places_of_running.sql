-- Takes places for jobs that run without one behind a gate: they were claimed while it was created. Skips locked rows: a
-- job that is being settled must not be left with a place, so it gets none for now. Returns how many were skipped.
-- Reads all running jobs. Indexes: jobs_running, jobs_pkey, places_pkey.
WITH missing AS MATERIALIZED (
    SELECT id, lease FROM mainspring.jobs
    WHERE state = 'running' AND CASE $1::text
        WHEN 'task' THEN task = $2::text WHEN 'queue' THEN queue = $2 ELSE task = $2 AND key IS NOT NULL
    END AND NOT EXISTS (
        SELECT FROM mainspring.places
        WHERE scope = $1 AND name = $2 AND places.key = CASE WHEN $1 = 'key' THEN jobs.key ELSE '' END
            AND job = jobs.id AND places.lease = jobs.lease
        OFFSET 0
    )
),
free AS MATERIALIZED (
    SELECT jobs.id, jobs.lease, jobs.node, CASE WHEN $1 = 'key' THEN jobs.key ELSE '' END AS key
    FROM missing JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[missing.id])
    WHERE jobs.lease = missing.lease AND jobs.state || '' = 'running'
    FOR SHARE OF jobs SKIP LOCKED
),
taken AS (
    INSERT INTO mainspring.places (scope, name, key, job, lease, node)
    SELECT $1, $2, key, id, lease, node FROM free
    ON CONFLICT (scope, name, key, job, lease) DO NOTHING
)
SELECT (SELECT count(*) FROM missing) - (SELECT count(*) FROM free)
