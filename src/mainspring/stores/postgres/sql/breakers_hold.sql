-- The breakers of these tasks, held until the transaction ends, in one order for everyone, and what time it is. Who holds
-- jobs comes here after them, and who waits here holds nothing that a claim waits for. Index: breakers_pkey.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason, coalesce($1::timestamptz, statement_timestamp())
FROM mainspring.breakers WHERE task = ANY ($2::text[]) ORDER BY task FOR UPDATE
