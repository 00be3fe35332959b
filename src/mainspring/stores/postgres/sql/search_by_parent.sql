-- The newest jobs that one job enqueued from a place back, so many at most. Indexes: jobs_by_parent,
-- history_by_parent, and a sort of what they find, which the OFFSET insists on.
SELECT id FROM (
    SELECT id FROM mainspring.jobs WHERE parent = $3::uuid
    UNION ALL
    SELECT id FROM mainspring.history
    WHERE parent = $3 AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    OFFSET 0
) AS children
WHERE id <= $1::uuid ORDER BY id DESC LIMIT $2::bigint
