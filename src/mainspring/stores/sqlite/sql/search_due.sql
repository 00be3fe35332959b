-- The next jobs of some lanes that wait and were due by then, the newest first. Walks over all of them, in the index alone,
-- and sorts them. A parked job was due when it was parked. Indexes: jobs_claimable_by_lane, jobs_parked.
SELECT id, number FROM (
    SELECT jobs.id, jobs.number
    FROM json_each(:lanes) AS lanes
    CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_claimable_by_lane ON jobs.lane = lanes.value
    WHERE jobs.run_at <= :soon AND jobs.id < :after AND jobs.rank IS NOT NULL
    UNION ALL
    SELECT jobs.id, jobs.number
    FROM json_each(:lanes) AS lanes
    CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_parked ON jobs.lane = lanes.value
    WHERE jobs.parked IS NOT NULL AND jobs.id < :after
)
ORDER BY id DESC LIMIT :limit
