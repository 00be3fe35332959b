-- Ends the reprocessing of a dead letter well, if nobody else has taken it since. Index: primary key.
UPDATE mainspring_dead_letters SET state = 'resolved', deadline = NULL, completed_at = ?
WHERE id = ? AND term = ? AND state = 'reprocessing'
