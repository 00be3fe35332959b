-- The first jobs that a node could claim: of each line and priority that it asks for the first due jobs from a position on
-- that pass the filter, among $7 entries; where the read ended if these were not enough; and when the next job is due,
-- approximately if the next hundred do not pass the filter. Then the suspects. The first row, at place 0, has
-- the time; the version of the rules, NULL if the node is not alive; priorities that the caller does not know, one from
-- each gap between those that it knows; how gates stand; and of tasks whose keys have a gate whether a key was freed and
-- when one is to be looked at. Each row has the time that it took to come to it. Locks nothing.
-- Index entries of claimed jobs at the head of a line stay while an old snapshot is held: starting at a position steps
-- over them. Indexes: jobs_by_order, jobs_by_queue, jobs_by_task, jobs_suspect, nodes_id_key, places_pkey, gates_pkey,
-- freed_by_task, keys_by_look.
WITH clock AS MATERIALIZED (
    SELECT now, least(now, $2::timestamptz) AS horizon
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS reading
)
SELECT
    0 AS place, NULL::uuid[], NULL::timestamptz[], NULL::text[], NULL::text[], NULL::smallint[], NULL::bytea[],
    NULL::timestamptz, NULL::uuid, NULL::timestamptz, now,
    (SELECT version FROM mainspring.rules
        WHERE EXISTS (SELECT FROM mainspring.nodes WHERE id = $3::text AND term = $4::bigint AND alive)),
    ARRAY(
        SELECT found.priority FROM unnest($5::smallint[], $6::smallint[]) AS gap (above, below) CROSS JOIN LATERAL (
            SELECT priority FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 > gap.above AND priority + 0 < gap.below
            ORDER BY priority + 0 LIMIT 1
        ) AS found
    ),
    ARRAY(
        SELECT (SELECT count(*) FROM mainspring.places WHERE scope = asked.scope AND name = asked.name AND key = '')
        FROM unnest($32::text[], $33::text[]) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    ARRAY(
        SELECT EXISTS (SELECT FROM mainspring.freed WHERE freed.task = keyed.task)
        FROM unnest($34::text[]) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT look_at FROM mainspring.keys WHERE keys.task = keyed.task AND look_at IS NOT NULL
            ORDER BY look_at LIMIT 1)
        FROM unnest($34) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT spent_until FROM mainspring.gates WHERE scope = asked.scope AND name = asked.name)
        FROM unnest($32, $33) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    clock_timestamp() - statement_timestamp()
FROM clock
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, reached.run_at, reached.id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                AND priority + 0 = asked.priority AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($8::text[]) AND queue <> ALL ($11::text[])
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
            AND priority + 0 = asked.priority AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest($13::integer[], $14::smallint[], $15::timestamptz[], $16::uuid[], $17::integer[])
    AS asked (place, priority, position_at, position_id, most)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) AS ids, array_agg(run_at) AS times, array_agg(queue) AS queues, array_agg(task) AS tasks,
        array_agg(care) AS cares, array_agg(key) AS keys
    FROM (
        SELECT id, run_at, queue, task, care, key FROM (
            SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                AND priority + 0 = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
            ORDER BY run_at, id LIMIT $7::integer
        ) AS entries
        WHERE task = ANY ($8::text[]) AND queue <> ALL ($11::text[])
        LIMIT asked.most
    ) AS first
) AS due
LEFT JOIN LATERAL (
    SELECT run_at, id FROM mainspring.jobs
    WHERE coalesce(cardinality(due.ids), 0) < asked.most AND state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
        AND priority + 0 = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
    ORDER BY run_at, id OFFSET $7 - 1 LIMIT 1
) AS reached ON true
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, reached.run_at, reached.id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
                AND task COLLATE "C" = asked.name AND priority = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE queue <> ALL (CASE WHEN asked.rest THEN $11 ELSE $10::text[] END)
            AND ($12::text[] IS NULL OR queue = ANY ($12))
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
            AND task COLLATE "C" = asked.name AND priority = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $18::integer[], $19::text[], $20::smallint[], $21::timestamptz[], $22::uuid[], $23::integer[], $24::boolean[]
) AS asked (place, name, priority, position_at, position_id, most, rest)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) AS ids, array_agg(run_at) AS times, array_agg(queue) AS queues, array_agg(task) AS tasks,
        array_agg(care) AS cares, array_agg(key) AS keys
    FROM (
        SELECT id, run_at, queue, task, care, key FROM (
            SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
                AND task COLLATE "C" = asked.name AND priority = asked.priority
                AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
            ORDER BY run_at, id LIMIT $7::integer
        ) AS entries
        WHERE queue <> ALL (CASE WHEN asked.rest THEN $11 ELSE $10::text[] END)
            AND ($12::text[] IS NULL OR queue = ANY ($12))
        LIMIT asked.most
    ) AS first
) AS due
LEFT JOIN LATERAL (
    SELECT run_at, id FROM mainspring.jobs
    WHERE coalesce(cardinality(due.ids), 0) < asked.most AND state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= ''
        AND task COLLATE "C" = asked.name AND priority = asked.priority
        AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
    ORDER BY run_at, id OFFSET $7 - 1 LIMIT 1
) AS reached ON true
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, reached.run_at, reached.id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= ''
                AND queue COLLATE "C" = asked.name AND priority = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($8)
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= ''
            AND queue COLLATE "C" = asked.name AND priority = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $25::integer[], $26::text[], $27::smallint[], $28::timestamptz[], $29::uuid[], $30::integer[]
) AS asked (place, name, priority, position_at, position_id, most)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) AS ids, array_agg(run_at) AS times, array_agg(queue) AS queues, array_agg(task) AS tasks,
        array_agg(care) AS cares, array_agg(key) AS keys
    FROM (
        SELECT id, run_at, queue, task, care, key FROM (
            SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= ''
                AND queue COLLATE "C" = asked.name AND priority = asked.priority
                AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
            ORDER BY run_at, id LIMIT $7::integer
        ) AS entries
        WHERE task = ANY ($8)
        LIMIT asked.most
    ) AS first
) AS due
LEFT JOIN LATERAL (
    SELECT run_at, id FROM mainspring.jobs
    WHERE coalesce(cardinality(due.ids), 0) < asked.most AND state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= ''
        AND queue COLLATE "C" = asked.name AND priority = asked.priority
        AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
    ORDER BY run_at, id OFFSET $7 - 1 LIMIT 1
) AS reached ON true
UNION ALL
SELECT
    -1, due.ids, due.times, due.queues, due.tasks, due.priorities, due.keys, NULL, NULL, (
        SELECT min(run_at) FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care = 1
            ORDER BY priority DESC, run_at, id LIMIT 1000
        ) AS entries
        WHERE run_at > clock.horizon AND task = ANY ($9::text[]) AND queue <> ALL ($10)
            AND ($12 IS NULL OR queue = ANY ($12))
    ), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN LATERAL (
    SELECT
        array_agg(id) AS ids, array_agg(run_at) AS times, array_agg(queue) AS queues, array_agg(task) AS tasks,
        array_agg(priority) AS priorities, array_agg(key) AS keys
    FROM (
        SELECT id, run_at, queue, task, priority, key FROM (
            SELECT id, run_at, queue, task, priority, key FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care = 1
            ORDER BY priority DESC, run_at, id LIMIT 1000
        ) AS entries
        WHERE run_at <= clock.horizon AND task = ANY ($9) AND queue <> ALL ($10)
            AND ($12 IS NULL OR queue = ANY ($12))
        ORDER BY priority DESC, run_at, id
    ) AS first
) AS due
WHERE $31::boolean
