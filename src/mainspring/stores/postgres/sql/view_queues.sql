-- How many jobs wait and run, by queue, and which queues stand still, and why. Steps from lane to lane and counts each
-- in the index; of those that are parked there are few, or their gate is shut for good. Indexes: jobs_waiting,
-- jobs_parked, jobs_running.
WITH RECURSIVE lanes AS (
    (SELECT lane FROM mainspring.jobs WHERE lane IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.lane FROM mainspring.jobs WHERE jobs.lane > lanes.lane ORDER BY jobs.lane LIMIT 1)
    FROM lanes WHERE lanes.lane IS NOT NULL
),
counted AS (
    SELECT
        (SELECT jobs.queue FROM mainspring.jobs WHERE jobs.lane = lanes.lane ORDER BY jobs.run_at LIMIT 1) AS queue,
        (SELECT count(*) FROM mainspring.jobs WHERE jobs.lane = lanes.lane) AS waiting,
        0 AS running
    FROM lanes WHERE lanes.lane IS NOT NULL
    UNION ALL
    SELECT queue, count(*), 0 FROM mainspring.jobs WHERE parked GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*) FROM mainspring.jobs WHERE state = 'running' GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0 FROM mainspring.pauses
)
SELECT counted.queue, sum(counted.waiting)::bigint, sum(counted.running)::bigint, paused_at, paused_by, reason
FROM counted LEFT JOIN mainspring.pauses AS pauses ON pauses.queue = counted.queue
GROUP BY counted.queue, paused_at, paused_by, reason
