-- The next rank that has claimable jobs, due or not. Index: jobs_claimable.
SELECT min(rank) FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable WHERE rank > ?
