-- Replaces what a node says about itself, and returns what it said before; nothing if it is not alive under this term.
-- Index: nodes_pkey.
WITH before AS (
    SELECT term, record FROM mainspring.nodes WHERE term = $1::bigint AND id = $2::text AND alive FOR NO KEY UPDATE
)
UPDATE mainspring.nodes AS nodes SET record = $3::bytea, revision = revision + 1 FROM before WHERE nodes.term = before.term
RETURNING before.record
