-- Every gate there is: a few rows, as many as tasks and queues were given limits.
SELECT scope, name, concurrency, rate_count, rate_period, rate_burst, spent_until FROM mainspring_gates
