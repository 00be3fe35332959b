-- Writes to runs how their jobs ended, or that they go on, in the order given; says of which schedules, and which of them
-- are open still: the job goes on, or a body of it. One that was pruned meanwhile is gone. Indexes: runs_pkey, places_by_job.
UPDATE mainspring.runs SET
    state = new.state, finished_at = new.finished_at, error = new.error,
    is_open = new.state IS NULL OR EXISTS (SELECT FROM mainspring.places WHERE places.job = new.id)
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bytea[]) AS new (id, state, finished_at, error)
WHERE runs.id = new.id
RETURNING runs.schedule, runs.is_open
