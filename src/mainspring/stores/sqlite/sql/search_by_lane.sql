-- The next jobs of a lane, the newest first. Index: jobs_by_lane, which has all that is asked.
SELECT id, number FROM mainspring_jobs INDEXED BY mainspring_jobs_by_lane
WHERE lane = :lane AND id < :after
ORDER BY id DESC LIMIT :limit
