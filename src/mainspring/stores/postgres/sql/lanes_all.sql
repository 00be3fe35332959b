-- All lanes that jobs can be claimed from, by going from the first job of one to the first of the next: as many looks as
-- there are lanes. Index: jobs_waiting.
WITH RECURSIVE found AS (
    (SELECT lane, queue, task, priority FROM mainspring.jobs WHERE lane IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT beyond.* FROM found CROSS JOIN LATERAL (
        SELECT lane, queue, task, priority FROM mainspring.jobs WHERE lane > found.lane ORDER BY lane LIMIT 1
    ) AS beyond
)
SELECT lane, queue, task, priority FROM found
