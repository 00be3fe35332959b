-- Gives a job to a node: attempt and lease go up together. Index: primary key; one by one, because for a list SQLite
-- walks over all jobs if statistics say that there are few.
UPDATE mainspring_jobs
SET state = 'running', strand = NULL, attempt = attempt + 1, previous_lease = lease, lease = ?, revision = revision + 1,
    node = ?, started_at = ?
WHERE number = ?
