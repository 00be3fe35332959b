-- Opens the lines of a task whose rate lets the next job start by now, or whose opening was written while the clock was
-- ahead: it is later than the rate allows. Two ranges, because an OR would read all that is shut in between.
-- Indexes: lanes' unique constraint, strands_shut.
UPDATE mainspring_strands SET opens_at = NULL
WHERE id IN (
    SELECT strands.id FROM mainspring_lanes AS lanes JOIN mainspring_strands AS strands ON strands.lane = lanes.id
    WHERE lanes.task = ?1 AND strands.full = 0 AND strands.opens_at <= ?2
    UNION ALL
    SELECT strands.id FROM mainspring_lanes AS lanes JOIN mainspring_strands AS strands ON strands.lane = lanes.id
    WHERE lanes.task = ?1 AND strands.full = 0 AND strands.opens_at > ?3
)
