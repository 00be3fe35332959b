-- Says how the tables stand from now on.
INSERT INTO mainspring_schema (version, oldest_code, changed_at) VALUES (?, ?, ?)
