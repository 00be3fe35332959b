-- All pairs of task and priority of waiting jobs, and the time. Steps from the first job of a pair to that of the next.
-- Index: jobs_by_task.
WITH RECURSIVE lines AS (
    (
        SELECT task, priority FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
        ORDER BY task COLLATE "C", priority LIMIT 1
    )
    UNION ALL
    SELECT beyond.* FROM lines CROSS JOIN LATERAL (
        SELECT task, priority FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND (task COLLATE "C", priority) > (lines.task, lines.priority)
        ORDER BY task COLLATE "C", priority LIMIT 1
    ) AS beyond
)
SELECT NULL::text, NULL::smallint, coalesce($1::timestamptz, statement_timestamp())
UNION ALL
SELECT task, priority, NULL FROM lines
