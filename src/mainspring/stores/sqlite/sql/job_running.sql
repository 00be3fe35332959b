-- Where a job is kept, if it runs under this lease on this node. Index: jobs_by_id.
SELECT number FROM mainspring_jobs WHERE id = ? AND lease = ? AND node = ? AND state = 'running'
