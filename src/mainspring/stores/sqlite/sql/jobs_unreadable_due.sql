-- Gives claimable jobs of a rank whose time is not a number another time. Index: jobs_claimable.
UPDATE mainspring_jobs INDEXED BY mainspring_jobs_claimable SET run_at = ? WHERE rank = ? AND run_at >= ''
