-- Remembers the id of a node that is forgotten otherwise.
INSERT OR IGNORE INTO mainspring_past_nodes (id) VALUES (?)
