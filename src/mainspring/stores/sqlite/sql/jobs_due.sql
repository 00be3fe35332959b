-- The next due jobs of a line, in order, from a place in it on. Index: jobs_waiting.
SELECT number, run_at, id FROM mainspring_jobs
WHERE strand = ? AND run_at <= ? AND (run_at, id) > (?, ?)
ORDER BY run_at, id LIMIT ?
