-- Opens the lines of a task whose rate lets the next job start by now. Indexes: lanes' unique constraint, strands_shut.
UPDATE mainspring_strands SET opens_at = NULL
WHERE lane IN (SELECT id FROM mainspring_lanes WHERE task = ?) AND opens_at <= ? AND full = 0
