-- Writes steps of different lines, those that are at the revision from which they lead, which nobody else holds who is alive;
-- returns their places. And one row with NULL, if the node is alive under its term: without it nothing is written. Waits for
-- whoever is writing the same one, for $14 at most if that is given. Indexes: nodes_pkey, nodes_id_key, outboxes_name_key,
-- outbox_stands_pkey.
WITH me AS MATERIALIZED (
    SELECT id FROM mainspring.nodes
    WHERE term = $2::bigint AND id = $1::text AND alive
        AND CASE WHEN $14::text IS NOT NULL THEN set_config('lock_timeout', $14, true) IS NOT NULL ELSE true END
),
new AS MATERIALIZED (
    SELECT new.*, outboxes.id * 64 + new.partition AS line
    FROM unnest(
        $4::text[], $5::integer[], $6::bigint[], $7::bigint[], $8::text[], $9::integer[], $10::integer[], $11::integer[],
        $12::timestamptz[], $13::bytea[]
    ) WITH ORDINALITY AS new (
        outbox, partition, before, cursor, holder, given, width, attempts, retry_at, error, place
    )
    JOIN mainspring.outboxes ON outboxes.name = new.outbox AND new.partition BETWEEN 0 AND outboxes.partitions - 1
),
held AS MATERIALIZED (
    SELECT stands.id, new.place
    FROM (SELECT * FROM new WHERE EXISTS (SELECT FROM me) ORDER BY line) AS new
    CROSS JOIN LATERAL (
        SELECT stands.ctid AS id FROM mainspring.outbox_stands AS stands
        WHERE stands.line = new.line AND stands.revision = new.before AND (
            stands.holder IS NULL OR stands.holder = $1
            OR (SELECT alive FROM mainspring.nodes WHERE nodes.id = stands.holder) IS NOT TRUE
        )
        FOR UPDATE OF stands
    ) AS stands
),
written AS (
    UPDATE mainspring.outbox_stands AS stands
    SET revision = new.before + 1, cursor = new.cursor, holder = new.holder, given = new.given, width = new.width,
        attempts = new.attempts, retry_at = new.retry_at, error = new.error, call = $3::uuid
    FROM held JOIN new ON new.place = held.place
    WHERE stands.ctid = held.id
    RETURNING new.place
)
SELECT place FROM written
UNION ALL
SELECT NULL FROM me
