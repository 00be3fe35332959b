-- Moves jobs that succeeded into history, those of which everything is still as it was when they were claimed by this
-- node; returns which. The rest is looked at one by one, and so are jobs that another transaction holds. A key whose job is
-- over is given up in passing, unless somebody is waiting for it in a transaction: then its row stays, and says nothing any more.
-- Rows are locked first and then deleted by ctid; a row that has changed since the snapshot belongs to the rest.
-- Node and state are spelt so that no index can serve them: it would read all that the node runs for each of these.
-- `= ANY (ARRAY[…])`: docs/decisions/0041. Indexes: jobs_pkey, places_by_job, unique_keys_pkey, nodes_id_key.
WITH free AS MATERIALIZED (
    SELECT jobs.ctid AS row, to_timestamp(given.finished_at) AS finished_at,
        to_timestamp(given.keep_until) AS keep_until, given.took, given.result
    FROM unnest(
        $2::uuid[], $3::bigint[], $4::bigint[], $5::double precision[], $6::double precision[],
        $7::double precision[], $8::bytea[]
    ) AS given (id, lease, revision, finished_at, keep_until, took, result)
    JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[given.id])
    WHERE jobs.lease = given.lease AND jobs.revision = given.revision
        AND jobs.node IS NOT DISTINCT FROM $1::text AND jobs.state || '' = 'running' AND NOT jobs.traced
        AND EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = $1 AND alive)
    FOR UPDATE OF jobs SKIP LOCKED
),
ended AS (
    DELETE FROM mainspring.jobs AS jobs USING free WHERE jobs.ctid = free.row
    RETURNING jobs.*, free.finished_at, free.keep_until, free.took, free.result
),
kept AS (
    INSERT INTO mainspring.history (
        id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
        policy, expires_at, cancel_requested_at, finished_at, keep_until, node, settled_by, started_at, seconds,
        enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent, facts, payload, result
    )
    SELECT
        id, queue, task, priority, 'succeeded', run_at, attempt, granted, losses, loss_limit, lease, revision + 1,
        max_attempts, policy, expires_at, cancel_requested_at, finished_at, keep_until, node, node, started_at, took,
        enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent, facts, payload, result
    FROM ended
),
vacated AS (
    DELETE FROM mainspring.places USING ended WHERE places.job = ended.id AND places.lease = ended.lease
    RETURNING places.scope, places.name, places.key
),
freed AS (
    INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key'
),
given_up AS (
    DELETE FROM mainspring.unique_keys WHERE ctid = ANY (ARRAY(
        SELECT held.ctid
        FROM ended JOIN mainspring.unique_keys AS held
            ON held.task = ended.task AND held.key = ended.unique_key AND held.job = ended.id
        WHERE ended.unique_key IS NOT NULL AND held.taken_until IS NULL
        FOR UPDATE OF held SKIP LOCKED
    ))
)
SELECT id FROM ended
