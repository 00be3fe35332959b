-- The tasks of which a job has been due for a while and which no node has parted from since, and what the live nodes
-- say about themselves. One step for each task and priority: its first job has its least run_at. Of parked jobs, which
-- were due when they were parked, one that has been due for that long is enough. Indexes: jobs_by_task, jobs_suspect,
-- jobs_parked, known_tasks_pkey.
WITH RECURSIVE
since AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) - $2::interval AS since),
lines AS (
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
),
parked AS (
    (SELECT task FROM mainspring.jobs WHERE parked ORDER BY task LIMIT 1)
    UNION ALL
    SELECT (
        SELECT jobs.task FROM mainspring.jobs WHERE jobs.parked AND jobs.task > parked.task ORDER BY jobs.task LIMIT 1
    )
    FROM parked WHERE parked.task IS NOT NULL
),
waiting AS (
    SELECT lines.task
    FROM lines CROSS JOIN LATERAL (
        SELECT jobs.run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
            AND jobs.task COLLATE "C" = lines.task AND jobs.priority = lines.priority
        ORDER BY jobs.run_at, jobs.id LIMIT 1
    ) AS head
    WHERE head.run_at <= (SELECT since FROM since)
    UNION
    SELECT task FROM mainspring.jobs
    WHERE state <> 'running' AND NOT parked AND care = 1 AND run_at <= (SELECT since FROM since)
    UNION
    SELECT parked.task FROM parked
    WHERE EXISTS (
        SELECT FROM mainspring.jobs
        WHERE jobs.parked AND jobs.task = parked.task AND jobs.run_at <= (SELECT since FROM since) OFFSET 0
    )
)
SELECT
    ARRAY(SELECT record FROM mainspring.nodes WHERE alive),
    ARRAY(
        SELECT waiting.task FROM waiting
        WHERE NOT EXISTS (
            SELECT FROM mainspring.known_tasks AS known
            WHERE known.task = waiting.task AND known.last_known > (SELECT since FROM since)
        )
        ORDER BY waiting.task
    )
