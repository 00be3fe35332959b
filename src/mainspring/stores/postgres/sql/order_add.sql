-- Asks something of a node; nothing if it is not alive. Index: nodes_id_key.
INSERT INTO mainspring.orders (node, word, given_at)
SELECT id, $3::bytea, coalesce($1::timestamptz, statement_timestamp())
FROM mainspring.nodes WHERE id = $2::text AND alive
RETURNING id, given_at
