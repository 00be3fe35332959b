-- The next jobs of all, the newest first. Index: jobs_by_id, which has all that is asked.
SELECT id, number FROM mainspring_jobs INDEXED BY mainspring_jobs_by_id
WHERE id < :after
ORDER BY id DESC LIMIT :limit
