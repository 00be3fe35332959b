-- Forgets the oldest attempts of a job. Index: primary key.
DELETE FROM mainspring_attempts WHERE number = ? AND lease <= ?
