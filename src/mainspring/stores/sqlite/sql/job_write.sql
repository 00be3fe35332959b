-- Writes a change that fits, whole. Index: primary key.
UPDATE mainspring_jobs
SET state = ?, lane = ?, rank = ?, parked = NULL, run_at = ?, attempt = ?, granted = ?, losses = ?, revision = ?,
    expires_at = ?, cancel_requested_at = ?, finished_at = ?, keep_until = ?, cause = ?
WHERE number = ?
