-- The same of all nodes, the dead ones that are not pruned yet too.
SELECT term, counter, alive, joined_at, renewed_at, record, (
    SELECT count(*) FROM mainspring_jobs WHERE state = 'running' AND node = nodes.id
), revision
FROM mainspring_nodes AS nodes ORDER BY joined_at, term
