-- The attempts of a job that did not succeed, by lease: beside a job that waits or runs, or with it in history.
-- Indexes: attempts_pkey, history_by_id.
SELECT body, lease AS place FROM mainspring.attempts WHERE job = $1::uuid
UNION ALL
SELECT each.body, each.place
FROM mainspring.history CROSS JOIN LATERAL unnest(history.attempts) WITH ORDINALITY AS each (body, place)
WHERE id = $1 AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
ORDER BY place
