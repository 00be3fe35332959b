-- Writes how the job of a run ended, or that it goes on; whose run it was, and whether that is open. Indexes: primary key,
-- places_by_job.
UPDATE mainspring_runs
SET state = :state, finished_at = :finished_at, error = :error,
    is_open = :state IS NULL OR EXISTS (SELECT 1 FROM mainspring_places WHERE job = :id)
WHERE id = :id
RETURNING schedule, is_open
