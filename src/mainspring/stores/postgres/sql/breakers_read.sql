-- The breakers of these tasks, and what is left of such as were taken away; what time it is comes with the last row. Locks
-- nothing. Index: breakers_pkey.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason, coalesce($1::timestamptz, statement_timestamp())
FROM mainspring.breakers WHERE task = ANY ($2::text[])
UNION ALL
SELECT
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    coalesce($1, statement_timestamp())
