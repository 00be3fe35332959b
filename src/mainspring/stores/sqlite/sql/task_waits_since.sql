-- When the first job of a task was due that still waits, whatever holds it back. One step for each lane, and for each key
-- with parked jobs. Indexes: lanes' unique constraint, jobs_claimable_by_lane, parked_keys' primary key, jobs_parked.
SELECT min(head_at) FROM (
    SELECT (
        SELECT min(run_at) FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
        WHERE lane = lanes.id AND rank IS NOT NULL
    ) AS head_at
    FROM mainspring_lanes AS lanes WHERE lanes.task = :task
    UNION ALL
    SELECT (
        SELECT min(run_at) FROM mainspring_jobs INDEXED BY mainspring_jobs_parked
        WHERE lane = keys.lane AND parked = keys.key
    )
    FROM mainspring_parked_keys AS keys WHERE keys.task = :task
)
