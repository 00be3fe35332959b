-- Writes to runs how their jobs ended, or that they go on, in the order given; says of which schedules, and whether it has
-- ended. One that was pruned meanwhile is gone. Index: runs_pkey.
UPDATE mainspring.runs SET state = new.state, finished_at = new.finished_at, error = new.error
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::bytea[]) AS new (id, state, finished_at, error)
WHERE runs.id = new.id
RETURNING runs.schedule, new.state IS NOT NULL
