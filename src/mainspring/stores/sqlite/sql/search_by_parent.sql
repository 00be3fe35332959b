-- The next jobs that one job enqueued, the newest first. Index: payloads_by_parent, and a sort of what it finds.
SELECT jobs.id, jobs.number
FROM mainspring_payloads AS payloads INDEXED BY mainspring_payloads_by_parent
CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = payloads.number
WHERE payloads.parent = :parent AND jobs.id < :after
ORDER BY jobs.id DESC LIMIT :limit
