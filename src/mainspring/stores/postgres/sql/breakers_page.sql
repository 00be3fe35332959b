-- A page of breakers, by task, and what time it is. Index: breakers_pkey.
SELECT
    task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, moved_by,
    reason, coalesce($1::timestamptz, statement_timestamp())
FROM mainspring.breakers WHERE task > $2::text AND threshold IS NOT NULL ORDER BY task LIMIT $3::integer
