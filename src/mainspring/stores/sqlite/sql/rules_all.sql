-- Every gate and every breaker there is: a few rows, as many as tasks and queues were given some. Of a queue that an
-- operator has limited, that limit in place of what is declared.
SELECT
    'gate', gates.scope, gates.name, coalesce(limits.concurrency, gates.concurrency), gates.rate_count, gates.rate_period,
    gates.rate_burst, gates.spent_until, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM mainspring_gates AS gates
LEFT JOIN mainspring_queue_limits AS limits ON gates.scope = 'queue' AND limits.queue = gates.name
UNION ALL
SELECT
    'gate', 'queue', limits.queue, limits.concurrency, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM mainspring_queue_limits AS limits
WHERE NOT EXISTS (SELECT 1 FROM mainspring_gates AS gates WHERE gates.scope = 'queue' AND gates.name = limits.queue)
UNION ALL
SELECT
    'breaker', task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced,
    since, moved_by, reason
FROM mainspring_breakers WHERE threshold IS NOT NULL
