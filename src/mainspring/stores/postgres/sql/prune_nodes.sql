-- Deletes nodes that have been dead for a day and hold no lease and no place, and their reports, but keeps their ids;
-- returns how many. A dead node that runs a job although it was cleared is looked at by nodes_orphans.sql again: its claim
-- was committed later, as one that waited for a synchronous standby.
-- Indexes: nodes_dead, nodes_pkey, jobs_running, nodes_id_key, reports_pkey, beats_pkey.
WITH dead AS (
    SELECT id, term FROM mainspring.nodes AS nodes
    WHERE NOT alive AND died_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
        AND (SELECT true FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id LIMIT 1) IS NULL
        AND id <> ALL (ARRAY(SELECT node FROM mainspring.places))
    ORDER BY died_at LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
reopened AS (
    UPDATE mainspring.nodes SET cleared = false WHERE term = ANY (ARRAY(
        SELECT term FROM mainspring.nodes AS nodes
        WHERE NOT alive AND cleared AND died_at <= coalesce($1, statement_timestamp()) - interval '1 day'
            AND (SELECT true FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id LIMIT 1)
        FOR UPDATE SKIP LOCKED
    ))
),
past AS (INSERT INTO mainspring.past_nodes (id) SELECT id FROM dead ON CONFLICT (id) DO NOTHING),
said AS (DELETE FROM mainspring.reports WHERE node = ANY (ARRAY(SELECT id FROM dead))),
beats AS (DELETE FROM mainspring.beats WHERE term = ANY (ARRAY(SELECT term FROM dead))),
gone AS (DELETE FROM mainspring.nodes WHERE id = ANY (ARRAY(SELECT id FROM dead)) RETURNING 1)
SELECT count(*) FROM gone
