-- Keeps a tally, in place of the one that was there. Index: primary key.
INSERT INTO mainspring_tallies (span, at, counted_by, body) VALUES (?, ?, ?, ?)
ON CONFLICT (span, at, counted_by) DO UPDATE SET body = excluded.body
