-- The nodes whose code does not have a migration, and which have renewed within a minute. Others are ended by
-- schema_end_older_nodes.sql: there may be no other node to declare them dead. `nodes` is small, and read in full.
SELECT id FROM mainspring.nodes
WHERE alive AND code < $1::integer AND EXISTS (
    SELECT FROM mainspring.beats
    WHERE beats.term = nodes.term AND renewed_at > statement_timestamp() - interval '1 minute'
)
ORDER BY id
