-- Deletes a dead letter. Index: primary key.
DELETE FROM mainspring_dead_letters WHERE id = ?
