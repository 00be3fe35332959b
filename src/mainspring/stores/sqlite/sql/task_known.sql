-- Remembers until when a live node knew a task. Index: primary key.
INSERT INTO mainspring_known_tasks (task, last_known) VALUES (?, ?)
ON CONFLICT (task) DO UPDATE SET last_known = max(last_known, excluded.last_known)
