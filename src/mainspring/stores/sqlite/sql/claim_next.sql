-- The next due jobs of a rank, from a position on. Index: jobs_claimable, which has all that is asked.
SELECT number, lane, run_at, id FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable
WHERE rank = ? AND run_at <= ? AND (run_at, id) > (?, ?)
ORDER BY run_at, id LIMIT ?
