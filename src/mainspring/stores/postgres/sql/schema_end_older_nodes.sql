-- Ends all nodes whose code does not have a migration; schema_older_nodes.sql has found none that renews. Their jobs are
-- orphans from now on, and such a node cannot join again. `nodes` is small, and read in full.
UPDATE mainspring.nodes SET alive = false, died_at = statement_timestamp() WHERE alive AND code < $1::integer
