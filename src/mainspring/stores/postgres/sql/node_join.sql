-- A new node; its term is greater than that of any node before. Nothing if its id was ever used.
-- Indexes: past_nodes_pkey, nodes_id_key.
WITH joined AS (
    INSERT INTO mainspring.nodes (id, joined_at, record)
    SELECT $2::text, coalesce($1::timestamptz, statement_timestamp()), $3::bytea
    WHERE NOT EXISTS (SELECT FROM mainspring.past_nodes WHERE id = $2)
    ON CONFLICT (id) DO NOTHING
    RETURNING term, joined_at
)
INSERT INTO mainspring.beats (term, counter, renewed_at) SELECT term, 0, joined_at FROM joined
RETURNING term
