-- Writes a success, while everything it was decided on is still so. Index: jobs_by_id.
UPDATE mainspring_jobs
SET state = 'succeeded', revision = ?, cause = NULL, finished_at = ?, keep_until = ?, seconds = ?, result = ?,
    settled_by = ?
WHERE id = ? AND state = 'running' AND lease = ? AND node = ? AND revision = ?
