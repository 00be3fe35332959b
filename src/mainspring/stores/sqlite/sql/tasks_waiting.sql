-- The tasks that jobs wait for in any lane, and until when a live node knew each that none knows now. One step for
-- each lane. Indexes: strands_by_key, known_tasks' primary key.
SELECT DISTINCT lanes.task, known.last_known
FROM mainspring_lanes AS lanes LEFT JOIN mainspring_known_tasks AS known ON known.task = lanes.task
WHERE EXISTS (
    SELECT 1 FROM mainspring_strands AS strands INDEXED BY mainspring_strands_by_key
    WHERE strands.lane = lanes.id AND strands.head_at IS NOT NULL
)
