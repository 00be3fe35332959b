-- Schedules whose time has come, the longest due first, from a place in that order on. Index: schedules_by_time.
SELECT name, revision, next_at, waits, last_end, record FROM mainspring_schedules INDEXED BY mainspring_schedules_by_time
WHERE next_at <= :now AND (next_at, name) > (:at, :name)
ORDER BY next_at, name LIMIT :limit
