-- Keeps the last error of a job. Index: primary key.
INSERT INTO mainspring_traces (number, error) VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET error = excluded.error
