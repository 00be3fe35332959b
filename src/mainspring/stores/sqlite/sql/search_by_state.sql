-- The next jobs of a state, the newest first. Index: jobs_by_state, which has all that is asked.
SELECT id, number FROM mainspring_jobs INDEXED BY mainspring_jobs_by_state
WHERE state = :state AND state <> 'ready' AND state <> 'running' AND state <> 'succeeded' AND id < :after
ORDER BY id DESC LIMIT :limit
