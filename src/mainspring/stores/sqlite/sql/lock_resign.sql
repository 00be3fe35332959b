-- Gives a lock up, under its exact term. Index: primary key.
DELETE FROM mainspring_locks WHERE name = ? AND holder = ? AND term = ?
