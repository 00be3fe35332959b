-- Whether a node is alive under a term. Index: primary key.
SELECT 1 FROM mainspring_nodes WHERE term = ? AND id = ? AND alive = 1
