-- The keys that jobs of a task wait with. Indexes: lanes' unique constraint, strands_by_key.
SELECT DISTINCT key FROM mainspring_strands
WHERE lane IN (SELECT id FROM mainspring_lanes WHERE task = ?) AND key IS NOT NULL
