-- How many jobs of a lane are due, and how many are not yet, up to a number of each, and since when the first has been
-- due. Parked jobs count as due; of more than that number, some. Indexes: jobs_claimable_by_lane, jobs_parked.
WITH parked(run_at) AS MATERIALIZED (
    SELECT run_at FROM mainspring_jobs INDEXED BY mainspring_jobs_parked
    WHERE lane = :lane AND parked IS NOT NULL LIMIT :most
)
SELECT
    min(:most, (SELECT count(*) FROM parked) + (
        SELECT count(*) FROM (
            SELECT 1 FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
            WHERE lane = :lane AND run_at <= :now AND rank IS NOT NULL LIMIT :most
        )
    )),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
            WHERE lane = :lane AND run_at > :now AND rank IS NOT NULL LIMIT :most
        )
    ),
    (
        SELECT min(run_at) FROM (
            SELECT run_at FROM parked
            UNION ALL
            SELECT min(run_at) FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
            WHERE lane = :lane AND run_at <= :now AND rank IS NOT NULL
        )
    )
