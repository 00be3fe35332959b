-- A new node; its term is greater than that of any node before.
INSERT INTO mainspring_nodes (id, joined_at, renewed_at, record) VALUES (?, ?, ?, ?) RETURNING term
