-- Gives jobs to a node: attempt and lease go up together. Index: primary key.
UPDATE mainspring_jobs
SET state = 'running', strand = NULL, attempt = attempt + 1, lease = lease + 1, revision = revision + 1,
    node = ?, started_at = ?
WHERE number IN (SELECT value FROM json_each(?))
