-- Says of all lines of a task's key whether its gate is full, and when its rate opens. Indexes: lanes' unique
-- constraint, strands_by_key.
UPDATE mainspring_strands INDEXED BY mainspring_strands_by_key SET full = ?, opens_at = ?
WHERE lane IN (SELECT id FROM mainspring_lanes WHERE task = ?) AND key = ?
