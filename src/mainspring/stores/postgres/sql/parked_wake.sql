-- Has the keys looked at that jobs are parked behind, at most so many, in case that one was forgotten. Goes from key to
-- key: as many looks as there are keys with parked jobs. Index: jobs_parked.
INSERT INTO mainspring.freed (task, key)
WITH RECURSIVE found AS (
    (SELECT task, key FROM mainspring.jobs WHERE parked ORDER BY task, key LIMIT 1)
    UNION ALL
    SELECT beyond.* FROM found CROSS JOIN LATERAL (
        SELECT task, key FROM mainspring.jobs
        WHERE parked AND (task, key) > (found.task, found.key) ORDER BY task, key LIMIT 1
    ) AS beyond
)
SELECT task, key FROM found LIMIT $1::integer
