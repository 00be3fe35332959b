-- The first jobs of a rank that are not due yet. Index: jobs_claimable, which has all that is asked.
SELECT lane, run_at FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable
WHERE rank = ? AND run_at > ?
ORDER BY run_at, id LIMIT ?
