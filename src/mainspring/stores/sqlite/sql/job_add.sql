-- A new job, unless its id is there already. Index: jobs_by_id.
INSERT INTO mainspring_jobs (number, id, state, lane, rank, run_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING
