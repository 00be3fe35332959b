-- How many jobs wait and run, by queue, and which queues are paused, and why. Steps from queue to queue and counts each in
-- the index; few jobs are parked or suspects, or their gate is shut for good. Indexes: jobs_by_queue, jobs_parked,
-- jobs_suspect, jobs_running.
WITH RECURSIVE queues AS (
    (
        SELECT queue COLLATE "C" AS queue FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= ''
        ORDER BY queue COLLATE "C" LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT jobs.queue COLLATE "C" FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND jobs.queue COLLATE "C" > queues.queue
        ORDER BY jobs.queue COLLATE "C" LIMIT 1
    )
    FROM queues WHERE queues.queue IS NOT NULL
),
counted AS (
    SELECT
        queues.queue, (
            SELECT count(*) FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND jobs.queue COLLATE "C" = queues.queue
        ) AS waiting,
        0 AS running
    FROM queues WHERE queues.queue IS NOT NULL
    UNION ALL
    SELECT queue, count(*), 0 FROM mainspring.jobs WHERE parked GROUP BY queue
    UNION ALL
    SELECT queue, count(*), 0 FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care = 1 GROUP BY queue
    UNION ALL
    SELECT queue, 0, count(*) FROM mainspring.jobs WHERE state = 'running' GROUP BY queue
    UNION ALL
    SELECT queue, 0, 0 FROM mainspring.pauses
)
SELECT counted.queue, sum(counted.waiting)::bigint, sum(counted.running)::bigint, paused_at, paused_by, reason
FROM counted LEFT JOIN mainspring.pauses AS pauses ON pauses.queue = counted.queue
GROUP BY counted.queue, paused_at, paused_by, reason
