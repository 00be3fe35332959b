-- The place of the last line that a job logged. Index: primary key.
SELECT coalesce(max(position), 0) FROM mainspring_log_lines WHERE number = ?
