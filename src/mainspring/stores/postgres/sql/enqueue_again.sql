-- Takes jobs out again that have been enqueued just now, and are in history: they were there when the enqueue was done,
-- and not yet when it began. Says which. Indexes: jobs_pkey, history_by_id.
DELETE FROM mainspring.jobs
WHERE id = ANY ($1::uuid[]) AND lane IS NOT NULL AND lease = 0 AND id = ANY (ARRAY(
    SELECT id FROM mainspring.history
    WHERE id = ANY ($1) AND keep_until > (SELECT pruned_until FROM mainspring.rules)
))
RETURNING id
