-- Remembers until when a live node knew these tasks; in order, so that two who part from the same do not lock each
-- other out. Index: known_tasks_pkey.
INSERT INTO mainspring.known_tasks (task, last_known)
SELECT task, coalesce($1::timestamptz, statement_timestamp()) FROM unnest($2::text[]) AS parted (task) ORDER BY task
ON CONFLICT (task) DO UPDATE SET last_known = greatest(known_tasks.last_known, excluded.last_known)
