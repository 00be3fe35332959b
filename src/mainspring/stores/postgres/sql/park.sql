-- Takes jobs out of their lanes whose keys let nobody pass. The lane is spelt as in take.sql. Index: jobs_pkey.
WITH held AS MATERIALIZED (
    SELECT id FROM mainspring.jobs WHERE id = ANY ($1::uuid[]) AND coalesce(lane, 0) <> 0
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE mainspring.jobs SET lane = NULL, parked = true FROM held WHERE jobs.id = ANY (ARRAY[held.id])
