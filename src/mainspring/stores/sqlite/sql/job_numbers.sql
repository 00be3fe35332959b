-- The highest number that a job has. Index: primary key.
SELECT coalesce(max(number), 0) FROM mainspring_jobs
