-- Keys of a task that were freed, or whose time has come or was written while the clock was ahead ($3: the latest that
-- the gate allows), and behind which jobs are parked: they are looked at now; and what time that is, in a row of its own.
-- Of the others nobody needs to think: whoever parks a job holds the gate, as the
-- asker does now. Parked jobs are looked for key by key: EXISTS would be made a join that walks over all of the task.
-- Indexes: freed_by_task, keys_by_look, jobs_parked.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
freed AS (DELETE FROM mainspring.freed WHERE task = $2::text RETURNING key),
opened AS (
    UPDATE mainspring.keys SET look_at = NULL WHERE task = $2 AND look_at <= (SELECT now FROM clock) RETURNING key
),
ahead AS (
    UPDATE mainspring.keys SET look_at = NULL
    WHERE task = $2 AND look_at > (SELECT now FROM clock) + $3::interval RETURNING key
)
SELECT key, now FROM (SELECT key FROM freed UNION SELECT key FROM opened UNION SELECT key FROM ahead) AS due CROSS JOIN clock
CROSS JOIN LATERAL (SELECT FROM mainspring.jobs WHERE parked AND jobs.task = $2 AND jobs.key = due.key LIMIT 1) AS parked
UNION ALL
SELECT NULL, now FROM clock
