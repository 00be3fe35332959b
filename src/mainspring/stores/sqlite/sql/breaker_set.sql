-- Writes how a breaker stands. Index: primary key.
INSERT INTO mainspring_breakers (
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (task) DO UPDATE SET
    threshold = excluded.threshold, cooldown = excluded.cooldown, phase = excluded.phase, term = excluded.term,
    revision = excluded.revision, failures = excluded.failures, opened_at = excluded.opened_at,
    probe_job = excluded.probe_job, probe_lease = excluded.probe_lease, forced = excluded.forced, since = excluded.since,
    moved_by = excluded.moved_by, reason = excluded.reason
