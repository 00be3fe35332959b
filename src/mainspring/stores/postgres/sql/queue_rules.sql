-- What holds for queues: gates, operators' limits and pauses. Reads all of them, of which there are few.
SELECT
    coalesce(gates.name, pauses.queue), paused_at, paused_by, reason, concurrency, rate_count, rate_period, rate_burst,
    limited, limited_by
FROM (SELECT * FROM mainspring.gates WHERE scope = 'queue') AS gates
FULL JOIN mainspring.pauses AS pauses ON pauses.queue = gates.name
