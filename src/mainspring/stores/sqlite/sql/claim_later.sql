-- The first jobs of a rank that are not due yet, by rank: all ranks, a few jobs of each. Index: jobs_claimable.
WITH RECURSIVE ranks(rank) AS (
    SELECT min(rank) FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable WHERE rank IS NOT NULL
    UNION ALL
    SELECT (SELECT min(rank) FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable WHERE rank > ranks.rank)
    FROM ranks WHERE ranks.rank IS NOT NULL
)
SELECT ranks.rank, jobs.lane, jobs.run_at
FROM ranks CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number IN (
    SELECT number FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable
    WHERE rank = ranks.rank AND run_at > :now
    ORDER BY run_at LIMIT :few
)
ORDER BY ranks.rank, jobs.run_at
