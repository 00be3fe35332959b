-- The newest jobs that wait or run, from the id $1 back and $2 at most, of one queue or task or both, in one of the
-- states $3. At most $6 jobs of each kind are read: waiting ones of the task or queue, suspects, parked ones, and
-- running ones if $7 is true. The first column is whether none of these limits was reached.
-- Indexes: jobs_by_task, jobs_by_queue, jobs_by_order, jobs_suspect, jobs_parked, jobs_running.
WITH near AS MATERIALIZED (
    (
        SELECT id, state, queue, task, 1 AS place FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = $5::text
        ORDER BY priority, run_at, id LIMIT $6::bigint
    )
    UNION ALL
    (
        SELECT id, state, queue, task, 2 FROM mainspring.jobs
        WHERE $5 IS NULL AND state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = $4::text
        ORDER BY priority, run_at, id LIMIT $6
    )
    UNION ALL
    (
        SELECT id, state, queue, task, 3 FROM mainspring.jobs
        WHERE $5 IS NULL AND $4 IS NULL AND state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
        ORDER BY priority + 0, run_at, id LIMIT $6
    )
    UNION ALL
    (
        SELECT id, state, queue, task, 4 FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care = 1
        ORDER BY priority, run_at, id LIMIT $6
    )
    UNION ALL
    (SELECT id, state, queue, task, 5 FROM mainspring.jobs WHERE parked ORDER BY task, key, queue LIMIT $6)
    UNION ALL
    (SELECT id, state, queue, task, 6 FROM mainspring.jobs WHERE state = 'running' AND $7::boolean LIMIT $6)
)
SELECT
    (SELECT bool_and(counted.jobs < $6) FROM (SELECT count(*) AS jobs FROM near GROUP BY place) AS counted), ARRAY(
        SELECT id FROM near
        WHERE id <= $1::uuid AND ($3::text[] IS NULL OR state = ANY ($3)) AND ($4 IS NULL OR queue = $4)
            AND ($5 IS NULL OR task = $5)
        ORDER BY id DESC LIMIT $2::bigint
    )
