-- Takes in new jobs of one kind; returns the ids of those that were not there. What is there is looked for in the same
-- snapshot in both places, since a job that moves to history meanwhile would be missed by looking in one after the
-- other; the conflict is for those that are enqueued twice at the same time. As arrays, and not as a join: the ids of a
-- batch lie side by side, so that a look into each part of history goes down its index once.
-- What is enqueued by another, runs and finishes while this statement is under way is found by enqueue_again.sql.
-- Indexes: jobs_pkey, history_by_id.
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
WHERE new.id <> ALL (ARRAY(
    SELECT id FROM mainspring.jobs WHERE id = ANY ($2)
    UNION ALL
    SELECT id FROM mainspring.history
    WHERE id = ANY ($2) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
))
ON CONFLICT (id) DO NOTHING
RETURNING id
