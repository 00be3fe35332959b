-- When the rate of a key opens next, by lane of a task; a little early where nothing is due by then, which does no
-- harm. Indexes: lanes' unique constraint, strands_shut.
SELECT lanes.id, (
    SELECT min(opens_at) FROM mainspring_strands
    WHERE lane = lanes.id AND opens_at IS NOT NULL AND full = 0
)
FROM mainspring_lanes AS lanes WHERE task = ?
