-- The first parked jobs of a lane and a key. Index: jobs_parked.
SELECT number FROM mainspring_jobs INDEXED BY mainspring_jobs_parked
WHERE lane = ? AND parked = ?
ORDER BY run_at, id LIMIT ?
