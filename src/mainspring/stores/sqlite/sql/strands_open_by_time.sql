-- Opens the lines of a task whose rate lets the next job start by now, or whose opening was written while the clock was
-- ahead: it is later than the rate allows. Indexes: lanes' unique constraint, strands_shut.
UPDATE mainspring_strands SET opens_at = NULL
WHERE lane IN (SELECT id FROM mainspring_lanes WHERE task = ?) AND full = 0
    AND opens_at IS NOT NULL AND (opens_at <= ? OR opens_at > ?)
