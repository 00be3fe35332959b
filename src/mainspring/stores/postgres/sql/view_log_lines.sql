-- What a job logged, in order: beside a job that waits or runs, or with it in history.
-- Indexes: log_lines_pkey, history_by_id.
SELECT body, position AS place FROM mainspring.log_lines WHERE job = $1::uuid
UNION ALL
SELECT each.body, each.place
FROM mainspring.history CROSS JOIN LATERAL unnest(history.log_lines) WITH ORDINALITY AS each (body, place)
WHERE id = $1 AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
ORDER BY place
