-- The tasks with keys that have opened, or that time opens. One step for each task. Index: parked_keys_by_time.
WITH RECURSIVE tasks (task) AS (
    SELECT min(task) FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time WHERE opens_at IS NOT NULL
    UNION ALL
    SELECT (
        SELECT min(task) FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time
        WHERE task > tasks.task AND opens_at IS NOT NULL
    )
    FROM tasks WHERE tasks.task IS NOT NULL
)
SELECT task FROM tasks WHERE task IS NOT NULL
