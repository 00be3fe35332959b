-- What a node says about itself. Index: primary key.
SELECT record FROM mainspring_nodes WHERE term = ? AND id = ?
