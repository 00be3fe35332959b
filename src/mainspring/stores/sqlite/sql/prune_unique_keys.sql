-- Unique keys whose period has passed and whose job is not active. Indexes: unique_keys_by_time, jobs_by_id.
DELETE FROM mainspring_unique_keys WHERE (task, key) IN (
    SELECT task, key FROM mainspring_unique_keys AS keys
    WHERE taken_until <= ? AND NOT EXISTS (
        SELECT 1 FROM mainspring_jobs
        WHERE id = keys.job AND state IN ('ready', 'scheduled', 'retrying', 'running')
    )
    ORDER BY taken_until LIMIT ?
)
