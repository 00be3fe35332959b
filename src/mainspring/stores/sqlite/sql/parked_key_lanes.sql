-- The lanes in which jobs of a task and key are parked. Index: primary key.
SELECT lane FROM mainspring_parked_keys WHERE task = ? AND key = ?
