-- What a node could claim: of each lane that it asks for the first due jobs from a remembered mark on, and when the next
-- one is due. The first row, at place 0, holds the rest: the time; the version of the rules, NULL if the node is not
-- alive; lanes that the asker does not know, one from each gap between those that it knows; how gates stand; and of tasks
-- whose keys have a gate whether a key was freed and when one is to be looked at. Each row says how long it took to come
-- to it. Locks nothing.
-- Dead entries at the head of a lane are what makes a queue slow while somebody holds an old snapshot open: beginning at
-- the mark steps over them, and so does looking for new lanes only between known ones.
-- Indexes: jobs_waiting, nodes_id_key, places_pkey, gates_pkey, freed_by_task, keys_by_look.
WITH clock AS MATERIALIZED (
    SELECT now, least(now, $2::timestamptz) AS horizon
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS reading
),
fresh AS MATERIALIZED (
    SELECT found.* FROM unnest($5::bigint[], $6::bigint[]) AS gap (above, below)
    CROSS JOIN LATERAL (
        SELECT lane, queue, task, priority FROM mainspring.jobs
        WHERE lane > gap.above AND lane < gap.below ORDER BY lane LIMIT 1
    ) AS found
)
SELECT
    0 AS place, NULL::uuid[], ARRAY(
        SELECT (SELECT spent_until FROM mainspring.gates WHERE scope = asked.scope AND name = asked.name)
        FROM unnest($12::text[], $13::text[]) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ), NULL::bytea[], now,
    (SELECT version FROM mainspring.rules
        WHERE EXISTS (SELECT FROM mainspring.nodes WHERE id = $3::text AND term = $4::bigint AND alive)),
    ARRAY(SELECT lane FROM fresh), ARRAY(SELECT queue FROM fresh), ARRAY(SELECT task FROM fresh),
    ARRAY(SELECT priority FROM fresh),
    ARRAY(
        SELECT (SELECT count(*) FROM mainspring.places WHERE scope = asked.scope AND name = asked.name AND key = '')
        FROM unnest($12, $13) WITH ORDINALITY AS asked (scope, name, place) ORDER BY place
    ),
    ARRAY(
        SELECT EXISTS (SELECT FROM mainspring.freed WHERE freed.task = keyed.task)
        FROM unnest($14::text[]) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    ARRAY(
        SELECT (SELECT look_at FROM mainspring.keys WHERE keys.task = keyed.task AND look_at IS NOT NULL
            ORDER BY look_at LIMIT 1)
        FROM unnest($14) WITH ORDINALITY AS keyed (task, place) ORDER BY place
    ),
    clock_timestamp() - statement_timestamp()
FROM clock
UNION ALL
SELECT
    asked.place::integer, due.ids, due.times, due.keys, later.run_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    clock_timestamp() - statement_timestamp()
FROM clock CROSS JOIN unnest($7::bigint[], $8::timestamptz[], $9::uuid[], $10::integer[], $11::boolean[])
    WITH ORDINALITY AS asked (lane, mark_at, mark_id, most, keyed, place)
CROSS JOIN LATERAL (
    SELECT array_agg(id) AS ids, array_agg(run_at) AS times, array_agg(key) FILTER (WHERE asked.keyed) AS keys
    FROM (
        SELECT id, run_at, key FROM mainspring.jobs
        WHERE lane = asked.lane AND (run_at, id) >= (asked.mark_at, asked.mark_id) AND run_at <= clock.horizon
        ORDER BY run_at, id LIMIT asked.most
    ) AS line
) AS due
LEFT JOIN LATERAL (
    SELECT run_at FROM mainspring.jobs
    WHERE lane = asked.lane AND run_at > clock.horizon ORDER BY run_at, id LIMIT 1
) AS later ON true
