-- Which of these nodes are alive, and what time it is. Index: nodes_id_key.
SELECT id, coalesce($1::timestamptz, statement_timestamp()) FROM mainspring.nodes WHERE id = ANY ($2::text[]) AND alive
UNION ALL
SELECT NULL, coalesce($1, statement_timestamp())
