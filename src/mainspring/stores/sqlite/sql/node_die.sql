-- Ends a node: a compare-and-set, true for one caller. Index: primary key.
UPDATE mainspring_nodes SET alive = 0, died_at = ?
WHERE term = ? AND id = ? AND alive = 1 AND counter = coalesce(?, counter)
