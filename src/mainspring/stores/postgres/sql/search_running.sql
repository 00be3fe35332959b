-- The newest jobs that run from a place back, so many at most. Index: jobs_running, and a sort of what it holds.
SELECT id FROM (SELECT id FROM mainspring.jobs WHERE state = 'running' OFFSET 0) AS running
WHERE id <= $1::uuid ORDER BY id DESC LIMIT $2::bigint
