-- Makes the first parked jobs of keys claimable, $3 of each queue and key. Returns of each key when the first of these is
-- due, and whether more are parked, those included that another transaction has locked. Steps from queue to queue of each
-- key and reads its priorities from the highest, so that jobs parked behind cost nothing. Indexes: jobs_parked, jobs_pkey.
WITH RECURSIVE queues AS (
    SELECT wanted.key, first.queue
    FROM unnest($2::bytea[]) AS wanted (key) CROSS JOIN LATERAL (
        SELECT queue FROM mainspring.jobs WHERE parked AND task = $1::text AND key = wanted.key ORDER BY queue LIMIT 1
    ) AS first
    UNION ALL
    SELECT queues.key, beyond.queue
    FROM queues CROSS JOIN LATERAL (
        SELECT queue FROM mainspring.jobs
        WHERE parked AND task = $1 AND key = queues.key AND queue > queues.queue ORDER BY queue LIMIT 1
    ) AS beyond
),
firsts AS MATERIALIZED (
    SELECT line.id, queues.key FROM queues CROSS JOIN LATERAL (
        SELECT id FROM mainspring.jobs WHERE parked AND task = $1 AND key = queues.key AND queue = queues.queue
        ORDER BY priority DESC, run_at, id LIMIT $3::integer FOR UPDATE SKIP LOCKED
    ) AS line
),
back AS (
    UPDATE mainspring.jobs SET parked = false FROM firsts WHERE jobs.id = ANY (ARRAY[firsts.id])
    RETURNING jobs.key, run_at
)
SELECT wanted.key, each.least, EXISTS (
    SELECT FROM mainspring.jobs WHERE parked AND task = $1 AND jobs.key = wanted.key OFFSET coalesce(each.freed, 0)
)
FROM unnest($2) AS wanted (key)
LEFT JOIN (SELECT key, min(run_at) AS least, count(*) AS freed FROM back GROUP BY key) AS each ON each.key = wanted.key
