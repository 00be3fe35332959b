-- Opens the lines of a task whose opening was written while the clock was ahead: it is later than the rate allows.
-- Indexes: lanes' unique constraint, strands_shut.
UPDATE mainspring_strands SET opens_at = NULL
WHERE lane IN (SELECT id FROM mainspring_lanes WHERE task = ?) AND opens_at > ? AND full = 0
