-- Keeps what a node says of itself, in place of what it said before. Index: primary key.
INSERT INTO mainspring_reports (node, at, body) VALUES (?, ?, ?)
ON CONFLICT (node) DO UPDATE SET at = excluded.at, body = excluded.body
