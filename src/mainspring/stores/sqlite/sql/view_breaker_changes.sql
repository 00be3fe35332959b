-- The last changes of a breaker's phase, the newest first. Index: primary key.
SELECT task, term, at, source, target, job, moved_by, reason
FROM mainspring_breaker_changes WHERE task = ? ORDER BY term DESC LIMIT ?
