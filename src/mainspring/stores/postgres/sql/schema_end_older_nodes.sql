-- Ends all nodes whose code does not know a migration; schema_older_nodes.sql has found none that renews. What they hold
-- is an orphan's from now on, and if one comes back it cannot join. `nodes` is small, and read in full.
UPDATE mainspring.nodes SET alive = false, died_at = statement_timestamp() WHERE alive AND code < $1::integer
