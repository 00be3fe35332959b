-- The breaker of a task, and what is left of one that was taken away. Index: primary key.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason
FROM mainspring_breakers WHERE task = ?
