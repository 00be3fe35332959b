-- The keys of a task with parked jobs. Index: primary key.
SELECT DISTINCT key FROM mainspring_parked_keys WHERE task = ?
