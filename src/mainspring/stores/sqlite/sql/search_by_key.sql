-- The next jobs with a key, the newest first. Index: payloads_by_key, which has all that is asked.
SELECT job, number FROM mainspring_payloads INDEXED BY mainspring_payloads_by_key
WHERE key = :key AND job < :after
ORDER BY job DESC LIMIT :limit
