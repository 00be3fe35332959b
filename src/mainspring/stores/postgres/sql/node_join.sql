-- A new node; its term is greater than that of any node before. Nothing if its id was ever used.
-- Indexes: past_nodes_pkey, nodes_id_key.
INSERT INTO mainspring.nodes (id, joined_at, renewed_at, record)
SELECT $2::text, now, now, $3::bytea
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
WHERE NOT EXISTS (SELECT FROM mainspring.past_nodes WHERE id = $2)
ON CONFLICT (id) DO NOTHING
RETURNING term
