-- Opens all keys of a task with parked jobs, for the next claims to look at. Index: primary key.
UPDATE mainspring_parked_keys SET opens_at = 0 WHERE task = ? AND opens_at IS NOT 0
