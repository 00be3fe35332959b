-- When the first job of a task was due that still waits, whatever holds it back. Indexes: lanes' unique constraint,
-- strands_by_key.
SELECT min(strands.head_at)
FROM mainspring_lanes AS lanes CROSS JOIN mainspring_strands AS strands INDEXED BY mainspring_strands_by_key
    ON strands.lane = lanes.id
WHERE lanes.task = ?
