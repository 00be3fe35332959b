-- The same for a claim that wants to give out a probe: what another has its hands on is left to it. Index: breakers_pkey.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason, coalesce($1::timestamptz, statement_timestamp())
FROM mainspring.breakers WHERE task = ANY ($2::text[]) ORDER BY task FOR UPDATE SKIP LOCKED
