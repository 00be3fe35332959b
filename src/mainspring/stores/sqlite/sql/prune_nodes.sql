-- Dead nodes that nobody has to remember: they hold no lease and no place. Index: jobs_running for the leases.
SELECT id FROM mainspring_nodes AS nodes
WHERE alive = 0 AND died_at <= ?
    AND NOT EXISTS (SELECT 1 FROM mainspring_jobs WHERE state = 'running' AND node = nodes.id)
    AND NOT EXISTS (SELECT 1 FROM mainspring_places AS places WHERE places.node = nodes.id)
LIMIT ?
