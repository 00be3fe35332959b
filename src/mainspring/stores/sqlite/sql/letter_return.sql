-- Ends the reprocessing of a dead letter badly, if nobody else has taken it since. Index: primary key.
UPDATE mainspring_dead_letters
SET state = 'pending', deadline = NULL, attempts = attempts + 1, error = ?, failed_at = ?
WHERE id = ? AND term = ? AND state = 'reprocessing'
