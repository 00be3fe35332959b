-- Replaces what a node says about itself. Index: primary key.
UPDATE mainspring_nodes SET record = ?, revision = revision + 1 WHERE term = ? AND id = ? AND alive = 1
