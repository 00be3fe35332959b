-- The highest number that a job has, by the primary key. Whatever statistics say: the other indexes would be walked over.
SELECT coalesce(max(number), 0) FROM mainspring_jobs NOT INDEXED
