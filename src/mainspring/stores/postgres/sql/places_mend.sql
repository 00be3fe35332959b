-- Gives up places of attempts that have ended and which no live node keeps. Reads all places, of which there are no more
-- than jobs that run. Indexes: jobs_pkey, nodes_id_key.
WITH leaked AS MATERIALIZED (
    SELECT DISTINCT job, lease FROM mainspring.places
    WHERE NOT EXISTS (
        SELECT FROM mainspring.jobs
        WHERE jobs.id = ANY (ARRAY[places.job]) AND jobs.lease = places.lease AND jobs.state || '' = 'running'
    ) AND NOT (kept AND EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = places.node AND alive))
    LIMIT $1::integer
),
vacated AS (
    DELETE FROM mainspring.places USING leaked WHERE places.job = leaked.job AND places.lease = leaked.lease
    RETURNING places.scope, places.name, places.key
),
freed AS (INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key')
SELECT count(*) FROM leaked
