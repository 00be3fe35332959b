-- Writes a step of a schedule, whole; its revision was looked up before. Index: primary key.
UPDATE mainspring_schedules
SET owner = ?, revision = ?, next_at = ?, waits = ?, is_paused = ?, last_end = ?, record = ?
WHERE name = ?
