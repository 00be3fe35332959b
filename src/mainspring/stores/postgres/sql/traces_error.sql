-- Keeps the last error of jobs. Index: traces_pkey.
INSERT INTO mainspring.traces (job, error) SELECT * FROM unnest($1::uuid[], $2::bytea[])
ON CONFLICT (job) DO UPDATE SET error = excluded.error
