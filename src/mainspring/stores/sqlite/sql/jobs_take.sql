-- Gives a job to a node: attempt and lease go up together (`core.job.next_lease`). Index: primary key; one by one, because
-- for a list SQLite scans all jobs if statistics say that there are few.
UPDATE mainspring_jobs
SET state = 'running', rank = NULL, attempt = attempt + 1, previous_lease = lease, lease = ((lease >> 32) + 1) << 32 | ?,
    revision = revision + 1, node = ?, started_at = ?
WHERE number = ?
