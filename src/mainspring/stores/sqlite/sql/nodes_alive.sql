-- The nodes that are not dead, with how many jobs each runs, by the time they joined. Indexes: nodes_alive, jobs_running.
SELECT term, counter, alive, joined_at, renewed_at, record, (
    SELECT count(*) FROM mainspring_jobs WHERE state = 'running' AND node = nodes.id
), revision
FROM mainspring_nodes AS nodes INDEXED BY mainspring_nodes_alive WHERE alive = 1 ORDER BY joined_at, term
