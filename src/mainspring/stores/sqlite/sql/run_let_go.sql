-- Closes the run of a job that has ended, unless a body of it goes on; whose run it was. Indexes: primary key,
-- places_by_job.
UPDATE mainspring_runs SET is_open = 0
WHERE id = :id AND is_open AND state IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM mainspring_places WHERE job = :id)
RETURNING schedule
