-- The last changes of a breaker's phase, the newest first. Index: breaker_changes_pkey.
SELECT task, term, at, source, target, job, moved_by, reason
FROM mainspring.breaker_changes WHERE task = $1::text ORDER BY term DESC LIMIT $2::integer
