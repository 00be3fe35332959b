-- Frees a unique key that has no period, if this job has it. Index: primary key.
DELETE FROM mainspring_unique_keys WHERE task = ? AND key = ? AND job = ? AND taken_until IS NULL
