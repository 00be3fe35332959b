-- A page of schedules, by name. Index: primary key.
SELECT name, revision, next_at, waits, last_end, record FROM mainspring_schedules
WHERE name > :after
ORDER BY name LIMIT :limit
