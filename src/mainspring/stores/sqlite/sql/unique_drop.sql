-- Frees a unique key, if this job has it. Index: primary key.
DELETE FROM mainspring_unique_keys WHERE task = ? AND key = ? AND job = ?
