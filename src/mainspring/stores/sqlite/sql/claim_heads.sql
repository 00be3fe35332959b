-- The first claimable job of each of some lanes, due or not. One step for each lane. Index: jobs_claimable_by_lane.
SELECT lanes.value, jobs.run_at, jobs.id
FROM json_each(?) AS lanes CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = (
    SELECT number FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
    WHERE lane = lanes.value AND rank IS NOT NULL
    ORDER BY run_at, id LIMIT 1
)
