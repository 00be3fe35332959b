-- Number of waiting jobs by task and queue, for the given tasks and priorities: due jobs, with the earliest due time, and jobs
-- that are due later. At most $4 of each kind are read for each task and priority, in claim order: jobs of other queues behind
-- these are not counted.
-- Index: jobs_by_task.
SELECT asked.task, due.queue, due.jobs, 0::bigint AS later, due.first
FROM unnest($1::text[], $2::smallint[]) AS asked (task, priority) CROSS JOIN LATERAL (
    SELECT queue, count(*) AS jobs, min(run_at) AS first FROM (
        SELECT queue, run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
            AND task COLLATE "C" = asked.task AND priority = asked.priority AND run_at <= $3::timestamptz
        ORDER BY run_at, id LIMIT $4::bigint
    ) AS entries
    GROUP BY queue
) AS due
UNION ALL
SELECT asked.task, later.queue, 0, later.jobs, NULL
FROM unnest($1, $2) AS asked (task, priority) CROSS JOIN LATERAL (
    SELECT queue, count(*) AS jobs FROM (
        SELECT queue FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
            AND task COLLATE "C" = asked.task AND priority = asked.priority AND run_at > $3
        ORDER BY run_at, id LIMIT $4
    ) AS entries
    GROUP BY queue
) AS later
