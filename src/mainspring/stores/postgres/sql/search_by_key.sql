-- The newest jobs with a key from a place back, so many at most. Indexes: jobs_by_key; jobs_running, all that it holds;
-- history_by_key in each part.
(
    SELECT id FROM mainspring.jobs
    WHERE hashtextextended(encode(key, 'hex'), 0) = hashtextextended(encode($3::bytea, 'hex'), 0) AND key = $3
        AND state <> 'running' AND uuid_send(id) <= uuid_send($1::uuid)
    ORDER BY uuid_send(id) DESC LIMIT $2::bigint
)
UNION ALL
(SELECT id FROM mainspring.jobs WHERE state = 'running' AND key = $3 AND id <= $1)
UNION ALL
(
    SELECT id FROM mainspring.history
    WHERE hashtextextended(encode(key, 'hex'), 0) = hashtextextended(encode($3, 'hex'), 0) AND key = $3
        AND uuid_send(id) <= uuid_send($1)
        AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    ORDER BY uuid_send(id) DESC LIMIT $2
)
ORDER BY id DESC LIMIT $2
