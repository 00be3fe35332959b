-- Ends a node: a compare-and-set, true for one caller; returns its record. With a counter, only if that is its last one;
-- then this transaction holds the node. Indexes: nodes_pkey, beats_pkey.
UPDATE mainspring.nodes SET alive = false, died_at = coalesce($1::timestamptz, statement_timestamp())
WHERE term = $2::bigint AND id = $3::text AND alive AND (
    $4::bigint IS NULL
    OR $4 = (SELECT counter FROM mainspring.beats WHERE beats.term = $2 ORDER BY counter DESC LIMIT 1)
)
RETURNING record
