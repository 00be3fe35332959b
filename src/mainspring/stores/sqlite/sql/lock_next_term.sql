-- The next term of any lock. Index: primary key.
UPDATE mainspring_counters SET value = value + 1 WHERE name = 'lock_terms' RETURNING value
