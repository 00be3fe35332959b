-- All lanes that jobs wait in, and what time it is. Steps from the first job of one to the first of the next.
-- Index: jobs_waiting.
WITH RECURSIVE lanes AS (
    (SELECT lane, queue, task FROM mainspring.jobs WHERE lane IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT beyond.* FROM lanes CROSS JOIN LATERAL (
        SELECT lane, queue, task FROM mainspring.jobs WHERE lane > lanes.lane ORDER BY lane LIMIT 1
    ) AS beyond
)
SELECT NULL::bigint, NULL::text, NULL::text, coalesce($1::timestamptz, statement_timestamp())
UNION ALL
SELECT lane, queue, task, NULL FROM lanes
