-- Finished jobs that are past their time. Index: jobs_finished.
SELECT number FROM mainspring_jobs WHERE keep_until <= ? ORDER BY keep_until LIMIT ?
