-- In which states the jobs are that have keys, those that are active; and what time it is. Index: jobs_pkey.
SELECT id, state, coalesce($1::timestamptz, statement_timestamp()) FROM mainspring.jobs WHERE id = ANY ($2::uuid[])
UNION ALL
SELECT NULL, NULL, coalesce($1, statement_timestamp())
