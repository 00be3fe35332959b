-- A page of the schedules of one owner, by name. Index: schedules_by_owner.
SELECT name, revision, next_at, waits, last_end, record FROM mainspring_schedules INDEXED BY mainspring_schedules_by_owner
WHERE owner = :owner AND name > :after
ORDER BY name LIMIT :limit
