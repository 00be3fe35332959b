-- Keeps a place for the body of an attempt that has ended, taken before or not. Index: primary key.
INSERT INTO mainspring_places (scope, name, key, job, lease, node, kept) VALUES (?, ?, ?, ?, ?, ?, 1)
ON CONFLICT (scope, name, key, job, lease) DO UPDATE SET kept = 1
