-- Forgets the oldest lines of a job. Index: primary key.
DELETE FROM mainspring_log_lines WHERE number = ? AND position <= ?
