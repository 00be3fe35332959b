-- Every gate and every breaker there is: a few rows, as many as tasks and queues were given some.
SELECT
    'gate', scope, name, concurrency, rate_count, rate_period, rate_burst, spent_until, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL
FROM mainspring_gates
UNION ALL
SELECT
    'breaker', task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced,
    since, moved_by, reason
FROM mainspring_breakers WHERE threshold IS NOT NULL
