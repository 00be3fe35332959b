-- Lets a queue have what is declared of it again. Index: primary key.
DELETE FROM mainspring_queue_limits WHERE queue = ?
