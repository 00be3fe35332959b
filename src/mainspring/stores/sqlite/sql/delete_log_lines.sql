-- Deletes what this table has of jobs. Index: primary key.
DELETE FROM mainspring_log_lines WHERE number IN (SELECT value FROM json_each(?))
