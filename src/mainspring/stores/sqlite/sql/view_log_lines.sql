-- What a job logged. Indexes: jobs_by_id, log_lines' primary key.
SELECT at, level, message FROM mainspring_log_lines
WHERE number = (SELECT number FROM mainspring_jobs WHERE id = ?) ORDER BY position
