-- The tasks that jobs wait for in any lane, and until when a live node knew each that none knows now. One step for
-- each lane. Indexes: jobs_claimable_by_lane, jobs_parked, known_tasks' primary key.
SELECT DISTINCT lanes.task, known.last_known
FROM mainspring_lanes AS lanes LEFT JOIN mainspring_known_tasks AS known ON known.task = lanes.task
WHERE EXISTS (
    SELECT 1 FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane WHERE lane = lanes.id AND rank IS NOT NULL
) OR EXISTS (
    SELECT 1 FROM mainspring_jobs INDEXED BY mainspring_jobs_parked WHERE lane = lanes.id AND parked IS NOT NULL
)
