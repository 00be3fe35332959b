-- The newest jobs that wait to be tried again from a place back, so many at most. Index: jobs_deferred.
SELECT id FROM mainspring.jobs WHERE state = 'retrying' AND uuid_send(id) <= uuid_send($1::uuid)
ORDER BY uuid_send(id) DESC LIMIT $2::bigint
