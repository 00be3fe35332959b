-- Replaces what a node says about itself. Index: primary key.
UPDATE mainspring_nodes SET record = ? WHERE term = ? AND id = ? AND alive = 1
