-- The nodes whose code does not know a migration, and which have renewed within a minute. A node that has not is ended
-- by schema_end_older_nodes.sql: nobody may be left to declare it dead. `nodes` is small, and read in full.
SELECT id FROM mainspring.nodes
WHERE alive AND code < $1::integer AND EXISTS (
    SELECT FROM mainspring.beats
    WHERE beats.term = nodes.term AND renewed_at > statement_timestamp() - interval '1 minute'
)
ORDER BY id
