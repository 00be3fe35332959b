-- The newest jobs that wait or run from a place back, so many at most, of one queue or task or both and in one of these
-- states, by what the lanes know. Says first whether that is all of them: no more than $6 are looked at in lanes, none
-- beyond so many that are parked, and none beyond so many that run, where $7 asks for those.
-- Indexes: jobs_waiting, jobs_parked, jobs_running.
WITH RECURSIVE lanes AS (
    (SELECT lane, queue, task FROM mainspring.jobs WHERE lane IS NOT NULL ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT beyond.* FROM lanes CROSS JOIN LATERAL (
        SELECT lane, queue, task FROM mainspring.jobs WHERE lane > lanes.lane ORDER BY lane LIMIT 1
    ) AS beyond
),
near AS MATERIALIZED (
    (
        SELECT line.id, line.state, lanes.queue, lanes.task, 1 AS place
        FROM lanes CROSS JOIN LATERAL (
            SELECT id, state FROM mainspring.jobs WHERE lane = lanes.lane ORDER BY run_at, id LIMIT $6::bigint
        ) AS line
        WHERE ($4::text IS NULL OR lanes.queue = $4) AND ($5::text IS NULL OR lanes.task = $5)
        LIMIT $6
    )
    UNION ALL
    (SELECT id, state, queue, task, 2 FROM mainspring.jobs WHERE parked ORDER BY task, key, home, run_at, id LIMIT $6)
    UNION ALL
    (SELECT id, state, queue, task, 3 FROM mainspring.jobs WHERE state = 'running' AND $7::boolean LIMIT $6)
)
SELECT
    (SELECT bool_and(counted.jobs < $6) FROM (SELECT count(*) AS jobs FROM near GROUP BY place) AS counted), ARRAY(
        SELECT id FROM near
        WHERE id <= $1::uuid AND ($3::text[] IS NULL OR state = ANY ($3)) AND ($4 IS NULL OR queue = $4)
            AND ($5 IS NULL OR task = $5)
        ORDER BY id DESC LIMIT $2::bigint
    )
