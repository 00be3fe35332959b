-- Lets a queue stand still, unless it does already. Index: primary key.
INSERT INTO mainspring_pauses (queue, paused_at, paused_by, reason) VALUES (?, ?, ?, ?) ON CONFLICT (queue) DO NOTHING
