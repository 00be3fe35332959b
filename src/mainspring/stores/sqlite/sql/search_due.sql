-- The next jobs of some lanes that wait and were due by then, the newest first. Walks over all of them, in the index alone,
-- and sorts them. Indexes: strands_by_key, jobs_waiting.
SELECT jobs.id, jobs.number
FROM json_each(:lanes) AS lanes
CROSS JOIN mainspring_strands AS strands INDEXED BY mainspring_strands_by_key ON strands.lane = lanes.value
CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_waiting ON jobs.strand = strands.id
WHERE jobs.run_at <= :soon AND jobs.id < :after
ORDER BY jobs.id DESC LIMIT :limit
