-- When the next schedule comes up, from a place in that order on. Index: schedules_by_time.
SELECT next_at FROM mainspring_schedules INDEXED BY mainspring_schedules_by_time
WHERE next_at IS NOT NULL AND (next_at, name) > (?, ?)
ORDER BY next_at, name LIMIT 1
