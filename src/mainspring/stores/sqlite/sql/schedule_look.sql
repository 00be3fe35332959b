-- A schedule, by its name. Index: primary key.
SELECT name, revision, next_at, waits, last_end, record FROM mainspring_schedules WHERE name = ?
