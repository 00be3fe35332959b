-- Which of these jobs are there, in whatever state. Indexes: jobs_pkey, history_by_id.
SELECT id FROM mainspring.jobs WHERE id = ANY ($1::uuid[])
UNION ALL
SELECT id FROM mainspring.history
WHERE id = ANY ($1) AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
