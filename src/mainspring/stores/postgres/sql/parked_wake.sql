-- Wakes keys with parked jobs, in case that one was missed: a limited number, after a task and a key. Returns them in
-- order. Skips from key to key: one index search per key with parked jobs. Index: jobs_parked.
INSERT INTO mainspring.freed (task, key)
WITH RECURSIVE found AS (
    (
        SELECT task, key FROM mainspring.jobs
        WHERE parked AND (task, key) > ($2::text, $3::bytea) ORDER BY task, key LIMIT 1
    )
    UNION ALL
    SELECT beyond.* FROM found CROSS JOIN LATERAL (
        SELECT task, key FROM mainspring.jobs
        WHERE parked AND (task, key) > (found.task, found.key) ORDER BY task, key LIMIT 1
    ) AS beyond
)
SELECT task, key FROM found LIMIT $1::integer
RETURNING task, key
