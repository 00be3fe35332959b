-- Registers a node; its term is greater than that of any node before. No row if its id was ever used, or if the tables
-- no longer support its code. Locks the version: a migration that changes it waits for the commit, and finds the node.
-- $5 is the revision of its record: a random one, because a failover or a restore can give a term a second time, and
-- other nodes keep records by term and revision.
-- Indexes: past_nodes_pkey, nodes_id_key.
WITH joined AS (
    INSERT INTO mainspring.nodes (id, joined_at, record, code, revision)
    SELECT $2::text, coalesce($1::timestamptz, statement_timestamp()), $3::bytea, $4::integer, $5::bigint
    FROM (SELECT oldest_code FROM mainspring.versions FOR SHARE) AS tables
    WHERE tables.oldest_code <= $4 AND NOT EXISTS (SELECT FROM mainspring.past_nodes WHERE id = $2)
    ON CONFLICT (id) DO NOTHING
    RETURNING term, joined_at
)
INSERT INTO mainspring.beats (term, counter, renewed_at) SELECT term, 0, joined_at FROM joined
RETURNING term
