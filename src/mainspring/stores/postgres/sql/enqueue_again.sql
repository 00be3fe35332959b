-- Takes jobs out again that were enqueued in this transaction, and are in history: they were not there yet when it looked.
-- Says which. Indexes: jobs_pkey, history_by_id.
DELETE FROM mainspring.jobs
WHERE id = ANY (ARRAY(
    SELECT id FROM mainspring.history
    WHERE id = ANY ($1::uuid[]) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
))
RETURNING id
