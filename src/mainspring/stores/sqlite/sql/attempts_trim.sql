-- Forgets the oldest attempts of a job, all but so many. Index: primary key.
DELETE FROM mainspring_attempts WHERE number = ? AND lease <= (
    SELECT lease FROM mainspring_attempts WHERE number = ? ORDER BY lease DESC LIMIT 1 OFFSET ?
)
