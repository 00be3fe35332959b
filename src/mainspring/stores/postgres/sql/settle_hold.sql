-- Holds jobs that wait or run until the transaction ends, by id: who is about to write several of them in more than one
-- statement must not come to meet somebody who wants them too. Index: jobs_pkey.
SELECT id FROM mainspring.jobs WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
