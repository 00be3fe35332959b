-- Forgets a node. Index: its unique constraint.
DELETE FROM mainspring_nodes WHERE id = ?
