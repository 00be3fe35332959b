-- Takes a dead letter for reprocessing. Index: primary key.
UPDATE mainspring_dead_letters SET state = 'reprocessing', term = term + 1, deadline = ? WHERE id = ?
