-- Has a schedule looked at again that waits for the end of a run: one has come. Index: primary key.
UPDATE mainspring_schedules
SET revision = revision + 1, waits = 0, last_end = :now, next_at = CASE WHEN is_paused THEN next_at ELSE :now END
WHERE name = :name AND waits
