-- Holds unique keys that have no period and whose jobs are not active any more: the end of a job leaves its key behind
-- while somebody waits for that. Reads twenty pages at random, or all if there are no more, so that in time none is
-- missed and no pruning takes long. Index: jobs_pkey.
SELECT task, key
FROM mainspring.unique_keys AS held TABLESAMPLE SYSTEM (
    least(100, 100.0 * 20 * 8192 / greatest(1, pg_relation_size('mainspring.unique_keys')))
)
WHERE taken_until IS NULL AND (SELECT id FROM mainspring.jobs WHERE jobs.id = held.job) IS NULL
LIMIT $1::bigint
FOR UPDATE SKIP LOCKED
