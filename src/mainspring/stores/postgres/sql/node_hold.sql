-- Holds a node until the transaction ends, so that it cannot renew meanwhile. Index: nodes_pkey.
SELECT term FROM mainspring.nodes WHERE term = $1::bigint AND id = $2::text AND alive FOR UPDATE
