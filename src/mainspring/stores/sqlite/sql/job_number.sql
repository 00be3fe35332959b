-- Under which number a job is kept. Index: jobs_by_id.
SELECT number FROM mainspring_jobs WHERE id = ?
