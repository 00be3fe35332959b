-- Keeps what an attempt saves for later ones. Index: primary key.
INSERT INTO mainspring_traces (number, saved) VALUES (?, ?) ON CONFLICT (number) DO UPDATE SET saved = excluded.saved
