-- Whether an id was ever used by a node. Indexes: nodes' unique constraint, past_nodes' primary key.
SELECT 1 FROM mainspring_nodes WHERE id = ? UNION ALL SELECT 1 FROM mainspring_past_nodes WHERE id = ? LIMIT 1
