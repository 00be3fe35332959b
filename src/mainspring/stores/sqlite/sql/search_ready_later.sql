-- The next jobs of some lanes that are ready and yet not due by then, as those that were moved to a later time, the newest
-- first. Reads all that wait for such a time. Index: jobs_claimable_by_lane.
SELECT jobs.id, jobs.number
FROM json_each(:lanes) AS lanes
CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_claimable_by_lane ON jobs.lane = lanes.value
WHERE jobs.run_at > :soon AND jobs.state = 'ready' AND jobs.id < :after AND jobs.rank IS NOT NULL
ORDER BY jobs.id DESC LIMIT :limit
