-- Ends a node: a compare-and-set, true for one caller; returns what it said about itself. Index: nodes_pkey.
UPDATE mainspring.nodes SET alive = false, died_at = coalesce($1::timestamptz, statement_timestamp())
WHERE term = $2::bigint AND id = $3::text AND alive AND counter = coalesce($4::bigint, counter)
RETURNING record
