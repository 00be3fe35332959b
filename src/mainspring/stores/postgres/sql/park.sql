-- Takes waiting jobs whose keys let no job pass out of the indexes that claims read. Index: jobs_pkey.
WITH held AS MATERIALIZED (
    SELECT id FROM mainspring.jobs
    WHERE id = ANY ($1::uuid[]) AND state || '' <> 'running' AND NOT coalesce(parked, false)
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE mainspring.jobs SET parked = true FROM held WHERE jobs.id = ANY (ARRAY[held.id])
