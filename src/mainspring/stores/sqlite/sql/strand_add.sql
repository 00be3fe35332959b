-- A line that was not there, with its first job.
INSERT INTO mainspring_strands (lane, key, head_at, head_id, full, opens_at) VALUES (?, ?, ?, ?, ?, ?) RETURNING id
