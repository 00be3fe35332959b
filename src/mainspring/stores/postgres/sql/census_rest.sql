-- How many jobs run, and how many are parked or suspects, by queue and task; no more than $2 of each are counted.
-- Indexes: jobs_running, jobs_parked, jobs_suspect.
SELECT queue, task, count(*), 0::bigint, 0::bigint, NULL::timestamptz
FROM (SELECT queue, task FROM mainspring.jobs WHERE state = 'running' LIMIT $2::bigint) AS running GROUP BY queue, task
UNION ALL
SELECT
    queue, task, 0, count(*) FILTER (WHERE run_at <= $1::timestamptz), count(*) FILTER (WHERE run_at > $1),
    min(run_at) FILTER (WHERE run_at <= $1)
FROM (
    (SELECT queue, task, run_at FROM mainspring.jobs WHERE parked ORDER BY task, key, queue LIMIT $2)
    UNION ALL
    (
        SELECT queue, task, run_at FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care = 1
        ORDER BY priority, run_at, id LIMIT $2
    )
) AS apart GROUP BY queue, task
