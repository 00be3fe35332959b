-- The first jobs that a node could claim: of each line and priority that it asks for the first due jobs from a position on
-- that pass the filter, among so many index entries; where the read ended if these were not enough; and when the next job is
-- due, or a lower bound if none of the next hundred entries passes the filter. The first row, at place 0, has the time; the
-- version of the rules, NULL if the node is not alive; priorities that the caller does not know, all of each gap between
-- those that it knows; how gates stand; and of tasks whose keys have a gate whether a key was freed and when one is to be
-- looked at. Each row has the time that it took to come to it. Locks nothing.
--
-- $1 now, for tests; $2 jobs due after that are not claimed; $3 node, $4 its term; $5 and $6 gaps: above, below
-- $7 tasks without a line of their own; $8 tasks of suspects; $9 queues that lines of tasks and suspects leave out
-- $10 queues that the line of the rest leaves out; $11 the only queues that lines of tasks and suspects read, NULL: all
-- $12 to $17 sources of jobs_by_order: place, priority, position (run_at, id), how many jobs, how many index entries
-- $18 to $25 sources of jobs_by_task: the same, name, whether it is the line of the rest
-- $26 to $32 sources of jobs_by_queue: the same, name
-- $33 to $38 sources of jobs_suspect: as the first
-- $39 and $40 gates of tasks and queues: scope, name; $41 tasks whose keys have a gate
--
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
            WITH RECURSIVE present AS (
                (
                    SELECT priority FROM mainspring.jobs
                    WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                        AND priority + 0 > gap.above AND priority + 0 < gap.below
                    ORDER BY priority + 0 LIMIT 1
                )
                UNION ALL
                SELECT next.priority FROM present CROSS JOIN LATERAL (
                    SELECT priority FROM mainspring.jobs
                    WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0
                        AND priority + 0 > present.priority AND priority + 0 < gap.below
                    ORDER BY priority + 0 LIMIT 1
                ) AS next
            )
            SELECT priority FROM present
            UNION ALL
            (
                SELECT priority FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care = 1 AND priority > gap.above AND priority < gap.below
                ORDER BY priority LIMIT 1
            )
        ) AS found
    ),
    ARRAY(
        SELECT (SELECT count(*) FROM mainspring.places WHERE scope = asked.scope AND name = asked.name AND key = '')
        FROM unnest($39::text[], $40::text[]) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    ARRAY(
        SELECT EXISTS (SELECT FROM mainspring.freed WHERE freed.task = keyed.task)
        FROM unnest($41::text[]) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT look_at FROM mainspring.keys WHERE keys.task = keyed.task AND look_at IS NOT NULL
            ORDER BY look_at LIMIT 1)
        FROM unnest($41) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT spent_until FROM mainspring.gates WHERE scope = asked.scope AND name = asked.name)
        FROM unnest($39, $40) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    clock_timestamp() - statement_timestamp()
FROM clock
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($7::text[]) AND queue <> ALL ($10::text[])
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $12::integer[], $13::smallint[], $14::timestamptz[], $15::uuid[], $16::integer[], $17::integer[]
) AS asked (place, priority, position_at, position_id, most, entries)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(run_at) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(run_at) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($7::text[]) AND queue <> ALL ($10::text[]) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0 AND priority + 0 = asked.priority
                    AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
                AND priority = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE queue <> ALL (CASE WHEN asked.rest THEN $10 ELSE $9::text[] END) AND ($11::text[] IS NULL OR queue = ANY ($11))
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
                AND priority = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $18::integer[], $19::smallint[], $20::timestamptz[], $21::uuid[], $22::integer[], $23::integer[], $24::text[], $25::boolean[]
) AS asked (place, priority, position_at, position_id, most, entries, name, rest)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(run_at) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(run_at) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                queue <> ALL (CASE WHEN asked.rest THEN $10 ELSE $9::text[] END) AND ($11::text[] IS NULL OR queue = ANY ($11)) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '' AND task COLLATE "C" = asked.name
                AND priority = asked.priority
                    AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
                AND priority = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($7)
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
                AND priority = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $26::integer[], $27::smallint[], $28::timestamptz[], $29::uuid[], $30::integer[], $31::integer[], $32::text[]
) AS asked (place, priority, position_at, position_id, most, entries, name)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(run_at) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(run_at) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($7) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '' AND queue COLLATE "C" = asked.name
                AND priority = asked.priority
                    AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
UNION ALL
SELECT
    asked.place, due.ids, due.times, due.queues, due.tasks, due.cares, due.keys, due.reached_at, due.reached_id,
    coalesce((
        SELECT run_at FROM (
            SELECT run_at, queue, task FROM mainspring.jobs
            WHERE state <> 'running' AND NOT parked AND care = 1 AND priority = asked.priority
                AND run_at > clock.horizon
            ORDER BY run_at, id LIMIT 100
        ) AS entries
        WHERE task = ANY ($8::text[]) AND queue <> ALL ($9) AND ($11 IS NULL OR queue = ANY ($11))
        LIMIT 1
    ), (
        SELECT run_at FROM mainspring.jobs
        WHERE state <> 'running' AND NOT parked AND care = 1 AND priority = asked.priority
            AND run_at > clock.horizon
        ORDER BY run_at, id OFFSET 99 LIMIT 1
    )), NULL, NULL, NULL, NULL, NULL, NULL, NULL, clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest(
    $33::integer[], $34::smallint[], $35::timestamptz[], $36::uuid[], $37::integer[], $38::integer[]
) AS asked (place, priority, position_at, position_id, most, entries)
CROSS JOIN LATERAL (
    SELECT
        array_agg(id) FILTER (WHERE passes) AS ids, array_agg(run_at) FILTER (WHERE passes) AS times,
        array_agg(queue) FILTER (WHERE passes) AS queues, array_agg(task) FILTER (WHERE passes) AS tasks,
        array_agg(care) FILTER (WHERE passes) AS cares, array_agg(key) FILTER (WHERE passes) AS keys,
        max(run_at) FILTER (WHERE number = asked.entries) AS reached_at,
        (array_agg(id) FILTER (WHERE number = asked.entries))[1] AS reached_id
    FROM (
        SELECT id, run_at, queue, task, care, key, number, passes FROM (
            SELECT
                id, run_at, queue, task, care, key, row_number() OVER () AS number,
                task = ANY ($8::text[]) AND queue <> ALL ($9) AND ($11 IS NULL OR queue = ANY ($11)) AS passes
            FROM (
                SELECT id, run_at, queue, task, care, key FROM mainspring.jobs
                WHERE state <> 'running' AND NOT parked AND care = 1 AND priority = asked.priority
                    AND (run_at, id) >= (asked.position_at, asked.position_id) AND run_at <= clock.horizon
                ORDER BY run_at, id LIMIT asked.entries
            ) AS entries
        ) AS entries
        WHERE passes OR number = asked.entries
        LIMIT asked.most
    ) AS first
) AS due
