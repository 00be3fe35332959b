-- The first jobs that a node could claim. One row for each source, which is a priority of a line:
-- - the first due jobs from its position on that pass the filter, among a bounded number of index entries;
-- - where the read ended, if these entries did not have as many jobs as are wanted;
-- - when the next job is due, or a lower bound if none of the next hundred entries passes the filter.
-- The first row, at place 0, has the time; the version of the rules, NULL if the node is not alive; priorities that the
-- caller does not know, one of each gap between those that it knows, with the place of the line; the time up to the end of
-- that search; the state of gates;
-- and, of tasks whose keys have a gate, whether a key was freed and when one is to be looked at. The last column is the
-- time from the beginning of the statement to the row. Locks nothing. Due times are limited to those that the caller
-- can read.
--
-- $1 now, for tests; $2 jobs due after that are not claimed; $3 node, $4 its term
-- $5 to $9 gaps: kind and name of the line (all, task, queue, suspect), its place, above, below
-- $10 tasks without a line of their own; $11 tasks of suspects; $12 queues that lines of tasks and suspects leave out
-- $13 queues that the line of the rest leaves out; $14 the only queues that lines of tasks and suspects read, NULL: all
-- $15 to $22 sources: kind and name of the line, whether it is the line of the rest, priority, position (run_at, id), how many
-- jobs, how many index entries
-- $23 and $24 gates of tasks and queues: scope, name; $25 tasks whose keys have a gate
--
-- Index entries of claimed jobs at the head of a line stay while an old snapshot is held: starting at a position steps
-- over them. Indexes: jobs_by_order, jobs_by_queue, jobs_by_task, jobs_suspect, nodes_id_key, places_pkey, gates_pkey,
-- freed_by_task, keys_by_look.
WITH clock AS MATERIALIZED (
    SELECT now, least(now, $2::timestamptz) AS horizon
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS reading
),
gaps AS MATERIALIZED (
    SELECT * FROM unnest($5::text[], $6::text[], $7::integer[], $8::smallint[], $9::smallint[])
        AS gap (kind, name, line, above, below)
),
asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $15::text[], $16::text[], $17::boolean[], $18::smallint[], $19::timestamptz[], $20::uuid[], $21::integer[], $22::integer[]
    ) WITH ORDINALITY AS asked (kind, name, rest, priority, position_at, position_id, most, entries, place)
)
SELECT
    0 AS place, NULL::uuid[], NULL::timestamptz[], NULL::text[], NULL::text[], NULL::smallint[], NULL::bytea[],
    NULL::timestamptz, NULL::uuid, NULL::timestamptz, now,
    (SELECT version FROM mainspring.rules
        WHERE EXISTS (SELECT FROM mainspring.nodes WHERE id = $3::text AND term = $4::bigint AND alive)),
    ARRAY(
        SELECT ARRAY[gap.line, found.priority::integer] FROM gaps AS gap CROSS JOIN LATERAL (
            SELECT priority FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                AND priority + 0 > gap.above AND priority + 0 < gap.below
            ORDER BY priority + 0 LIMIT 1
        ) AS found
        WHERE gap.kind = 'all'
        UNION ALL
        SELECT ARRAY[gap.line, found.priority::integer] FROM gaps AS gap CROSS JOIN LATERAL (
            SELECT priority FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = gap.name
                AND priority > gap.above AND priority < gap.below
            ORDER BY priority LIMIT 1
        ) AS found
        WHERE gap.kind = 'task'
        UNION ALL
        SELECT ARRAY[gap.line, found.priority::integer] FROM gaps AS gap CROSS JOIN LATERAL (
            SELECT priority FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = gap.name
                AND priority > gap.above AND priority < gap.below
            ORDER BY priority LIMIT 1
        ) AS found
        WHERE gap.kind = 'queue'
        UNION ALL
        SELECT ARRAY[gap.line, found.priority::integer] FROM gaps AS gap CROSS JOIN LATERAL (
            SELECT priority FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care = 1
                AND priority > gap.above AND priority < gap.below
            ORDER BY priority LIMIT 1
        ) AS found
        WHERE gap.kind = 'suspect'
    ),
    clock_timestamp() - statement_timestamp(),
    ARRAY(
        SELECT (SELECT count(*) FROM mainspring.places WHERE scope = asked.scope AND name = asked.name AND key = '')
        FROM unnest($23::text[], $24::text[]) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    ARRAY(
        SELECT EXISTS (SELECT FROM mainspring.freed WHERE freed.task = keyed.task)
        FROM unnest($25::text[]) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT look_at FROM mainspring.keys WHERE keys.task = keyed.task AND look_at IS NOT NULL
            ORDER BY look_at LIMIT 1)
        FROM unnest($25) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT spent_until FROM mainspring.gates WHERE scope = asked.scope AND name = asked.name)
        FROM unnest($23, $24) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    clock_timestamp() - statement_timestamp()
FROM clock
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT least(run_at, '9999-01-01Z') FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                AND priority + 0 = asked.priority AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($10::text[]) AND queue <> ALL ($13::text[])
        LIMIT 1
    ), (
        SELECT least(run_at, '9999-01-01Z') FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
            AND priority + 0 = asked.priority AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN asked CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(greatest(run_at, '0001-01-01Z')) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(greatest(run_at, '0001-01-01Z')) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($10::text[]) AND queue <> ALL ($13::text[]) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                    AND priority + 0 = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id)
                    AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
WHERE asked.kind = 'all'
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT least(run_at, '9999-01-01Z') FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
                AND priority = asked.priority AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE queue <> ALL (CASE WHEN asked.rest THEN $13 ELSE $12::text[] END) AND ($14::text[] IS NULL OR queue = ANY ($14))
        LIMIT 1
    ), (
        SELECT least(run_at, '9999-01-01Z') FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
            AND priority = asked.priority AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN asked CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(greatest(run_at, '0001-01-01Z')) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(greatest(run_at, '0001-01-01Z')) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                queue <> ALL (CASE WHEN asked.rest THEN $13 ELSE $12::text[] END) AND ($14::text[] IS NULL OR queue = ANY ($14)) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
                    AND priority = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id)
                    AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
WHERE asked.kind = 'task'
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT least(run_at, '9999-01-01Z') FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
                AND priority = asked.priority AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($10)
        LIMIT 1
    ), (
        SELECT least(run_at, '9999-01-01Z') FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
            AND priority = asked.priority AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN asked CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(greatest(run_at, '0001-01-01Z')) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(greatest(run_at, '0001-01-01Z')) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($10) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
                    AND priority = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id)
                    AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
WHERE asked.kind = 'queue'
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT least(run_at, '9999-01-01Z') FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care = 1
                AND priority = asked.priority AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($11::text[]) AND queue <> ALL ($12) AND ($14 IS NULL OR queue = ANY ($14))
        LIMIT 1
    ), (
        SELECT least(run_at, '9999-01-01Z') FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care = 1
            AND priority = asked.priority AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN asked CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(greatest(run_at, '0001-01-01Z')) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(greatest(run_at, '0001-01-01Z')) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($11::text[]) AND queue <> ALL ($12) AND ($14 IS NULL OR queue = ANY ($14)) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care = 1
                    AND priority = asked.priority AND (run_at, id) >= (asked.position_at, asked.position_id)
                    AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
WHERE asked.kind = 'suspect'
