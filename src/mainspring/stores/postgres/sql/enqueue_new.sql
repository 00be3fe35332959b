-- As enqueue.sql, for a job whose id was drawn for it: nobody can have enqueued it before. Does nothing
-- if it comes too late. May tell others of the job with its commit, which is the quickest way. Index: jobs_pkey.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
added AS (
    INSERT INTO mainspring.jobs (
        id, care, queue, task, priority, state, run_at, max_attempts, loss_limit, policy, enqueued_at, expires_at,
        timeout, key, parent, facts, payload
    )
    SELECT
        $2::uuid, $3::smallint, $4::text, $5::text, $6::smallint,
        CASE WHEN coalesce($11::timestamptz, now + $12::interval) <= now THEN 'ready' ELSE 'scheduled' END,
        coalesce($11, now + $12), $7::integer, $8::integer, $9::text, now,
        coalesce($14::timestamptz, now + $13::interval), $10::interval, $15::bytea, $16::uuid, $17::bytea, $18::bytea
    FROM clock
    WHERE $21::timestamptz IS NULL OR statement_timestamp() <= $21
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT id, CASE WHEN $19::text IS NOT NULL THEN pg_notify($19, $20::text) IS NULL END FROM added
