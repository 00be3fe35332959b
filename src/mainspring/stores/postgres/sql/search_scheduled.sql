-- The newest scheduled jobs from a place back, so many at most. Index: jobs_deferred.
SELECT id FROM mainspring.jobs WHERE state = 'scheduled' AND uuid_send(id) <= uuid_send($1::uuid)
ORDER BY uuid_send(id) DESC LIMIT $2::bigint
