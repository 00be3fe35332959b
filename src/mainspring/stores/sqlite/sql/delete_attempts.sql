-- Deletes what this table has of jobs. Index: primary key.
DELETE FROM mainspring_attempts WHERE number IN (SELECT value FROM json_each(?))
