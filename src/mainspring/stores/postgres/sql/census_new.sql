-- Of the newest jobs, so many of those that have not finished and as many of those that have: how many each time, how many
-- of them were enqueued since an instant, and when the earliest of those was. Indexes: jobs_pkey, history_by_id in each part.
SELECT count(*), count(*) FILTER (WHERE enqueued_at >= $1::timestamptz), min(enqueued_at) FILTER (WHERE enqueued_at >= $1)
FROM (SELECT enqueued_at FROM mainspring.jobs ORDER BY id DESC LIMIT $2::bigint) AS active
UNION ALL
SELECT count(*), count(*) FILTER (WHERE enqueued_at >= $1), min(enqueued_at) FILTER (WHERE enqueued_at >= $1)
FROM (SELECT enqueued_at FROM mainspring.history ORDER BY id DESC LIMIT $2) AS finished
