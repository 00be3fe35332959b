-- The number of a lane. Index: its unique constraint.
SELECT id FROM mainspring_lanes WHERE task = ? AND queue = ? AND priority = ? AND suspect = ?
