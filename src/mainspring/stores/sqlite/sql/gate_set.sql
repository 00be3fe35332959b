-- Sets a gate; what its rate has spent is left alone. Index: primary key.
INSERT INTO mainspring_gates (scope, name, concurrency, rate_count, rate_period, rate_burst) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, name) DO UPDATE SET
    concurrency = excluded.concurrency,
    rate_count = excluded.rate_count,
    rate_period = excluded.rate_period,
    rate_burst = excluded.rate_burst
