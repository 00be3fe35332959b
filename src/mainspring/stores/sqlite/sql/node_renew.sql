-- Says that a node is alive, and tells what it holds, what is asked of it and who else is there; nothing if it is not
-- alive under this term. One statement, because a node that has nothing else to do makes it every second or two.
-- Records of nodes, which name all of their tasks, are read only where their revision is not the one in :known, a JSON
-- object of revisions by term: for fifty nodes of a thousand tasks, all of them took 35 ms.
-- Indexes: primary key, jobs_running, orders_by_node, nodes_alive.
UPDATE mainspring_nodes SET counter = counter + 1, renewed_at = :now
WHERE term = :term AND id = :node AND alive = 1
RETURNING
    (
        SELECT json_group_array(json_array(hex(id), lease, cancel_requested_at))
        FROM mainspring_jobs WHERE state = 'running' AND node = :node
    ),
    (
        SELECT json_group_array(json_array(id, node, word, given_at, done_at, answer))
        FROM (SELECT * FROM mainspring_orders WHERE node = :node AND done_at IS NULL ORDER BY id)
    ),
    (
        SELECT json_group_array(json_array(
            term, counter, alive, joined_at, renewed_at,
            CASE WHEN json_extract(:known, '$."' || term || '"') IS NOT revision THEN record END,
            (SELECT count(*) FROM mainspring_jobs WHERE state = 'running' AND node = others.id),
            revision
        ))
        FROM (SELECT * FROM mainspring_nodes INDEXED BY mainspring_nodes_alive WHERE alive = 1 ORDER BY joined_at, term) AS others
    )
