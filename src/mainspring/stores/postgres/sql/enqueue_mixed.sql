-- As enqueue.sql, for jobs of many kinds at once. Those with unique keys have been given them. Indexes: jobs_pkey,
-- history_by_id.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now)
INSERT INTO mainspring.jobs (
    id, care, queue, task, priority, state, run_at, max_attempts, loss_limit, policy, enqueued_at, expires_at,
    timeout, key, parent, facts, payload, unique_key, unique_period, unique_on_conflict
)
SELECT
    new.id, new.care, new.queue, new.task, new.priority,
    CASE WHEN coalesce(new.run_at, now + new.delay) <= now THEN 'ready' ELSE 'scheduled' END,
    coalesce(new.run_at, now + new.delay), new.max_attempts, new.loss_limit, new.policy, now,
    coalesce(new.expires_at, now + new.expires_in), new.timeout, new.key, new.parent, new.facts, new.payload,
    new.unique_key, new.unique_period, new.unique_on_conflict
FROM clock CROSS JOIN unnest(
    $2::uuid[], $3::smallint[], $4::text[], $5::text[], $6::smallint[], $7::integer[], $8::integer[], $9::text[],
    $10::interval[], $11::timestamptz[], $12::interval[], $13::timestamptz[], $14::interval[], $15::bytea[],
    $16::uuid[], $17::bytea[], $18::bytea[], $19::bytea[], $20::interval[], $21::text[]
) AS new (
    id, care, queue, task, priority, max_attempts, loss_limit, policy, timeout, run_at, delay, expires_at, expires_in,
    key, parent, facts, payload, unique_key, unique_period, unique_on_conflict
)
WHERE new.id <> ALL (ARRAY(
    SELECT id FROM mainspring.jobs WHERE id = ANY ($2)
    UNION ALL
    SELECT id FROM mainspring.history
    WHERE id = ANY ($2) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
))
ON CONFLICT (id) DO NOTHING
RETURNING id
