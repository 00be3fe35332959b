-- Deletes what this table has of a job. Index: primary key.
DELETE FROM mainspring_attempts WHERE number = ?
