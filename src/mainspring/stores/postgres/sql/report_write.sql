-- Keeps what a node says, in place of what it said before; nothing if it is not alive under its term.
-- Indexes: nodes_id_key, reports_pkey.
INSERT INTO mainspring.reports (node, said_at, body)
SELECT id, coalesce($1::timestamptz, statement_timestamp()), $4::bytea
FROM mainspring.nodes WHERE id = $2::text AND term = $3::bigint AND alive
ON CONFLICT (node) DO UPDATE SET said_at = excluded.said_at, body = excluded.body
RETURNING node
