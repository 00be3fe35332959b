-- Writes how breakers stand; each is held by this transaction. Index: breakers_pkey.
UPDATE mainspring.breakers SET
    threshold = new.threshold, cooldown = new.cooldown, phase = new.phase, term = new.term, revision = new.revision,
    failures = new.failures, opened_at = new.opened_at, probe_job = new.probe_job, probe_lease = new.probe_lease,
    forced = new.forced, since = new.since, moved_by = new.moved_by, reason = new.reason
FROM unnest(
    $1::text[], $2::integer[], $3::interval[], $4::text[], $5::bigint[], $6::bigint[], $7::integer[], $8::timestamptz[],
    $9::uuid[], $10::bigint[], $11::boolean[], $12::timestamptz[], $13::text[], $14::text[]
) AS new (
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason
)
WHERE breakers.task = new.task
