-- Keeps that runs ended of schedules that wait for it, and that somebody else has in hand. Waits for nobody.
INSERT INTO mainspring.ends (schedule, ended_at) SELECT schedule, $1::timestamptz FROM unnest($2::text[]) AS ended (schedule)
