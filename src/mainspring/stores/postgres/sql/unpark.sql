-- Lets the first parked jobs of keys back into their lanes, of each lane so many; says of each key since when the first of
-- these is due, and whether more are parked, those included that another has its hands on. Goes from lane to lane of each key, so that what is parked behind costs nothing.
-- Indexes: jobs_parked, jobs_pkey.
WITH RECURSIVE homes AS (
    SELECT wanted.key, first.home
    FROM unnest($2::bytea[]) AS wanted (key) CROSS JOIN LATERAL (
        SELECT home FROM mainspring.jobs WHERE parked AND task = $1::text AND key = wanted.key ORDER BY home LIMIT 1
    ) AS first
    UNION ALL
    SELECT homes.key, beyond.home
    FROM homes CROSS JOIN LATERAL (
        SELECT home FROM mainspring.jobs
        WHERE parked AND task = $1 AND key = homes.key AND home > homes.home ORDER BY home LIMIT 1
    ) AS beyond
),
firsts AS MATERIALIZED (
    SELECT line.id, homes.key FROM homes CROSS JOIN LATERAL (
        SELECT id FROM mainspring.jobs WHERE parked AND task = $1 AND key = homes.key AND home = homes.home
        ORDER BY run_at, id LIMIT $3::integer FOR UPDATE SKIP LOCKED
    ) AS line
),
back AS (
    UPDATE mainspring.jobs SET lane = home, parked = false FROM firsts WHERE jobs.id = ANY (ARRAY[firsts.id])
    RETURNING jobs.key, run_at
)
SELECT wanted.key, each.least, EXISTS (
    SELECT FROM mainspring.jobs WHERE parked AND task = $1 AND jobs.key = wanted.key OFFSET coalesce(each.freed, 0)
)
FROM unnest($2) AS wanted (key)
LEFT JOIN (SELECT key, min(run_at) AS least, count(*) AS freed FROM back GROUP BY key) AS each ON each.key = wanted.key
