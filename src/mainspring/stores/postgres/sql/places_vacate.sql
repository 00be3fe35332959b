-- Gives up the places of these (job, lease). Index: places_by_job.
WITH vacated AS (
    DELETE FROM mainspring.places USING unnest($1::uuid[], $2::bigint[]) AS ended (job, lease)
    WHERE places.job = ended.job AND places.lease = ended.lease
    RETURNING places.scope, places.name, places.key
),
freed AS (INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key')
SELECT count(*) FROM vacated
