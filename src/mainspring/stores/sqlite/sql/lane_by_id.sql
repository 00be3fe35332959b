-- A lane by its number. Index: primary key.
SELECT task, queue, priority, suspect FROM mainspring_lanes WHERE id = ?
