-- The same for jobs whose numbers follow one another, of which all are claimed: most often. Index: primary key.
UPDATE mainspring_jobs
SET state = 'running', rank = NULL, attempt = attempt + 1, previous_lease = lease, lease = ((lease >> 32) + 1) << 32 | ?,
    revision = revision + 1, node = ?, started_at = ?
WHERE number BETWEEN ? AND ?
