-- As enqueue.sql, for jobs that have unique keys, each a different one: takes in those whose ids are not there and whose
-- keys nobody has, and leaves the others to be looked at. Keys are taken in their order, so that two batches do not
-- wait for each other in a circle. Indexes: jobs_pkey, history_by_id, unique_keys_pkey.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
new AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::uuid[], $11::timestamptz[], $14::timestamptz[], $15::bytea[], $16::uuid[], $17::bytea[], $18::bytea[],
        $19::bytea[], $20::interval[], $21::text[]
    ) AS one (id, run_at, expires_at, key, parent, facts, payload, unique_key, unique_period, unique_on_conflict)
    WHERE one.id <> ALL (ARRAY(
        SELECT id FROM mainspring.jobs WHERE id = ANY ($2)
        UNION ALL
        SELECT id FROM mainspring.history
        WHERE id = ANY ($2) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    ))
),
taken AS (
    INSERT INTO mainspring.unique_keys (task, key, job, taken_until)
    SELECT $5::text, unique_key, id, now + unique_period FROM new CROSS JOIN clock ORDER BY unique_key
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job
)
INSERT INTO mainspring.jobs (
    id, care, queue, task, priority, state, run_at, max_attempts, loss_limit, policy, enqueued_at, expires_at,
    timeout, key, parent, facts, payload, unique_key, unique_period, unique_on_conflict
)
SELECT
    new.id, $3::smallint, $4::text, $5::text, $6::smallint,
    CASE WHEN coalesce(new.run_at, now + $12::interval) <= now THEN 'ready' ELSE 'scheduled' END,
    coalesce(new.run_at, now + $12), $7::integer, $8::integer, $9::text, now,
    coalesce(new.expires_at, now + $13::interval), $10::interval, new.key, new.parent, new.facts, new.payload,
    new.unique_key, new.unique_period, new.unique_on_conflict
FROM clock CROSS JOIN new
WHERE new.id = ANY (ARRAY(SELECT job FROM taken))
ON CONFLICT (id) DO NOTHING
RETURNING id
