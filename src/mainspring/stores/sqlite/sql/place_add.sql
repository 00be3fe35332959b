-- Takes a place at a gate.
INSERT INTO mainspring_places (scope, name, key, job, lease, node) VALUES (?, ?, ?, ?, ?, ?)
