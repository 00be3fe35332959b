-- As enqueue.sql, for jobs with unique keys that have been given to them. Index: jobs_pkey.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now)
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
FROM clock CROSS JOIN unnest(
    $2::uuid[], $11::timestamptz[], $14::timestamptz[], $15::bytea[], $16::uuid[], $17::bytea[], $18::bytea[],
    $19::bytea[], $20::interval[], $21::text[]
) AS new (id, run_at, expires_at, key, parent, facts, payload, unique_key, unique_period, unique_on_conflict)
ON CONFLICT (id) DO NOTHING
RETURNING id
