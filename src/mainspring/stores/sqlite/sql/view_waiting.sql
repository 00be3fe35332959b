-- How many jobs wait, by queue: counts them in the indexes, 100,000 in about 5 ms. Indexes: jobs_claimable_by_lane,
-- jobs_parked.
SELECT lanes.queue, sum(lanes_waiting.jobs) FROM (
    SELECT lane, count(*) AS jobs FROM mainspring_jobs INDEXED BY mainspring_jobs_claimable_by_lane
    WHERE rank IS NOT NULL GROUP BY lane
    UNION ALL
    SELECT lane, count(*) FROM mainspring_jobs INDEXED BY mainspring_jobs_parked WHERE parked IS NOT NULL GROUP BY lane
) AS lanes_waiting
CROSS JOIN mainspring_lanes AS lanes ON lanes.id = lanes_waiting.lane
GROUP BY lanes.queue
