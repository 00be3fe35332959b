-- The lanes of a queue and a task: a few rows, as many as there are lanes.
SELECT id FROM mainspring_lanes
WHERE (:queue IS NULL OR queue = :queue) AND (:task IS NULL OR task = :task)
