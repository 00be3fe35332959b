-- Whether a node is alive. Index: its unique constraint.
SELECT 1 FROM mainspring_nodes WHERE id = ? AND alive = 1
