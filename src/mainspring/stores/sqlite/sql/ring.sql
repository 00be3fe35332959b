-- Counts a transaction after which someone may want to look. Those who cannot be told otherwise read this number.
UPDATE mainspring_counters SET value = value + 1 WHERE name = 'rings' RETURNING value
