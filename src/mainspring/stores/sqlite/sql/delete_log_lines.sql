-- Deletes what this table has of a job. Index: primary key.
DELETE FROM mainspring_log_lines WHERE number = ?
