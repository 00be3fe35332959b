-- Gives jobs to a node: attempt and lease go up together (`core.job.next_lease`). All of them exist, so that every row
-- conflicts and nothing is inserted: an UPDATE of a list would scan all jobs where statistics say that there are few.
-- Index: primary key.
INSERT INTO mainspring_jobs (number, id, state, lane, run_at)
SELECT value, x'', '', 0, 0 FROM json_each(?) WHERE true
ON CONFLICT (number) DO UPDATE
SET state = 'running', rank = NULL, attempt = attempt + 1, previous_lease = lease, lease = ((lease >> 32) + 1) << 32 | ?,
    revision = revision + 1, node = ?, started_at = ?
