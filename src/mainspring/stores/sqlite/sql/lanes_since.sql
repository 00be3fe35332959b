-- Lanes that were added after another one. Index: primary key.
SELECT id, task, queue, priority, suspect FROM mainspring_lanes WHERE id > ?
