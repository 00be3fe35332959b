-- A line that a job logged.
INSERT INTO mainspring_log_lines (number, position, at, level, message) VALUES (?, ?, ?, ?, ?)
