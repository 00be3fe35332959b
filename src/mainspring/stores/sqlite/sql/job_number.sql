-- Where a job is kept, and its state. Index: jobs_by_id.
SELECT number, state FROM mainspring_jobs WHERE id = ?
