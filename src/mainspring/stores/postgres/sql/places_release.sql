-- Gives up places that a node kept, and whose attempts have ended. Indexes: places_by_job, jobs_pkey.
WITH vacated AS (
    DELETE FROM mainspring.places USING unnest($2::uuid[], $3::bigint[]) AS kept (job, lease)
    WHERE places.job = kept.job AND places.lease = kept.lease AND places.node = $1::text AND NOT EXISTS (
        SELECT FROM mainspring.jobs
        WHERE jobs.id = places.job AND jobs.lease = places.lease AND jobs.state || '' = 'running'
    )
    RETURNING places.scope, places.name, places.key
),
freed AS (INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key')
SELECT count(*) FROM vacated
