-- Keeps what jobs save and how far they are; what is left out stays. Index: traces_pkey.
INSERT INTO mainspring.traces (job, saved, progress) SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[])
ON CONFLICT (job) DO UPDATE SET
    saved = coalesce(excluded.saved, traces.saved), progress = coalesce(excluded.progress, traces.progress)
