-- A page of breakers, by task. Index: primary key.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason
FROM mainspring_breakers WHERE task > ? AND threshold IS NOT NULL ORDER BY task LIMIT ?
