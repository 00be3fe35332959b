-- Ends a dead letter that was found to be nobody's. Index: primary key.
UPDATE mainspring_dead_letters SET state = ?, deadline = NULL, completed_at = ? WHERE id = ?
