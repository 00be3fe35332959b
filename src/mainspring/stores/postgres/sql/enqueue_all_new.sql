-- As enqueue.sql, for jobs whose ids were drawn for them and which come for the first time: nobody can have enqueued them,
-- so nothing is looked for. Of the time that enqueue.sql takes here, a third is spent on looking and on conflicts.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now)
INSERT INTO mainspring.jobs (
    id, care, queue, task, priority, state, run_at, max_attempts, loss_limit, policy, enqueued_at, expires_at,
    timeout, key, parent, facts, payload
)
SELECT
    new.id, $3::smallint, $4::text, $5::text, $6::smallint,
    CASE WHEN coalesce(new.run_at, now + $12::interval) <= now THEN 'ready' ELSE 'scheduled' END,
    coalesce(new.run_at, now + $12), $7::integer, $8::integer, $9::text, now,
    coalesce(new.expires_at, now + $13::interval), $10::interval, new.key, new.parent, new.facts, new.payload
FROM clock CROSS JOIN unnest(
    $2::uuid[], $11::timestamptz[], $14::timestamptz[], $15::bytea[], $16::uuid[], $17::bytea[], $18::bytea[]
) AS new (id, run_at, expires_at, key, parent, facts, payload)
