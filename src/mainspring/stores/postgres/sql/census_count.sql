-- How many jobs wait in lanes: due, and since when the first has been; and later. No more than $3 of each are counted.
-- Index: jobs_waiting.
SELECT
    asked.lane,
    (SELECT count(*) FROM (
        SELECT FROM mainspring.jobs WHERE lane = asked.lane AND run_at <= $2::timestamptz LIMIT $3::bigint
    ) AS due),
    (SELECT count(*) FROM (
        SELECT FROM mainspring.jobs WHERE lane = asked.lane AND run_at > $2 LIMIT $3
    ) AS later),
    (SELECT run_at FROM mainspring.jobs WHERE lane = asked.lane AND run_at <= $2 ORDER BY run_at, id LIMIT 1)
FROM unnest($1::bigint[]) AS asked (lane)
