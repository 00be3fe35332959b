-- A new node; its term is greater than that of any node before. The revision of its record is a random one, because a restore can
-- give a term a second time, and other nodes keep records by term and revision.
INSERT INTO mainspring_nodes (id, joined_at, renewed_at, record, revision) VALUES (?, ?, ?, ?, ?) RETURNING term
