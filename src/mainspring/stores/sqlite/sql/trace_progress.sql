-- Keeps how far a job is. Index: primary key.
INSERT INTO mainspring_traces (number, percent, message) VALUES (?, ?, ?)
ON CONFLICT (number) DO UPDATE SET percent = excluded.percent, message = excluded.message
