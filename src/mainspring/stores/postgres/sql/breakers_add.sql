-- Makes room for breakers of tasks that never had one; they get their rules when they are held. Index: breakers_pkey.
INSERT INTO mainspring.breakers (task, phase, term, revision, failures, forced, since, moved_by, reason)
SELECT task, 'closed', 0, 0, 0, false, coalesce($1::timestamptz, statement_timestamp()), '', ''
FROM unnest($2::text[]) AS new (task)
ON CONFLICT (task) DO NOTHING
