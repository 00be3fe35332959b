-- Forgets periods that have passed while their job is still active: from now on its end frees the key. Keeps the index
-- free of what prune_unique_keys would have to step over. Index: unique_keys_by_time.
UPDATE mainspring_unique_keys SET taken_until = NULL WHERE (task, key) IN (
    SELECT task, key FROM mainspring_unique_keys AS keys
    WHERE taken_until <= ? AND EXISTS (
        SELECT 1 FROM mainspring_jobs
        WHERE id = keys.job AND state IN ('ready', 'scheduled', 'retrying', 'running')
    )
    ORDER BY taken_until LIMIT ?
)
