-- Lets a queue go on. Index: primary key.
DELETE FROM mainspring_pauses WHERE queue = ?
