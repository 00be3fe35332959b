-- Has the keys looked at that jobs are parked behind, in case that one was forgotten: at most so many, behind a task and a
-- key. Returns them in order. Goes from key to key: as many looks as there are keys with parked jobs. Index: jobs_parked.
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
