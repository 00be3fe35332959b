-- Gives claimable jobs of a rank whose time is not an integer another time. Index: jobs_claimable.
UPDATE mainspring_jobs INDEXED BY mainspring_jobs_claimable SET run_at = ? WHERE rank = ? AND typeof(run_at) <> 'integer'
