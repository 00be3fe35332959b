-- Deletes nodes that have been dead for a day and hold no lease and no place, and their reports, but keeps their ids;
-- returns how many. Indexes: nodes_dead, jobs_running, nodes_id_key, reports_pkey, beats_pkey.
WITH dead AS (
    SELECT id, term FROM mainspring.nodes AS nodes
    WHERE NOT alive AND died_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
        AND (SELECT true FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id LIMIT 1) IS NULL
        AND id <> ALL (ARRAY(SELECT node FROM mainspring.places))
    ORDER BY died_at LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
),
past AS (INSERT INTO mainspring.past_nodes (id) SELECT id FROM dead ON CONFLICT (id) DO NOTHING),
said AS (DELETE FROM mainspring.reports WHERE node = ANY (ARRAY(SELECT id FROM dead))),
beats AS (DELETE FROM mainspring.beats WHERE term = ANY (ARRAY(SELECT term FROM dead))),
gone AS (DELETE FROM mainspring.nodes WHERE id = ANY (ARRAY(SELECT id FROM dead)) RETURNING 1)
SELECT count(*) FROM gone
