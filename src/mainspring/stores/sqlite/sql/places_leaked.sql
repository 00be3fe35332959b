-- Attempts that have ended and have places which no live node keeps for their bodies. Reads all places, of which there
-- are no more than jobs that run. Indexes: jobs_by_id, nodes_alive.
SELECT DISTINCT job, lease FROM mainspring_places AS places
WHERE NOT EXISTS (
    SELECT 1 FROM mainspring_jobs WHERE id = places.job AND lease = places.lease AND state = 'running'
) AND NOT (kept = 1 AND node IN (SELECT id FROM mainspring_nodes INDEXED BY mainspring_nodes_alive WHERE alive = 1))
LIMIT ?
