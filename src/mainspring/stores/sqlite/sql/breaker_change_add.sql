-- Keeps a change of a breaker's phase.
INSERT INTO mainspring_breaker_changes (task, term, at, source, target, job, moved_by, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
