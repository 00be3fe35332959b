-- A new schedule; that there is none of its name was looked up before.
INSERT INTO mainspring_schedules (owner, revision, next_at, waits, is_paused, last_end, record, name)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
