-- A lane that was not there; it stays for ever.
INSERT INTO mainspring_lanes (task, queue, priority, suspect) VALUES (?, ?, ?, ?) RETURNING id
