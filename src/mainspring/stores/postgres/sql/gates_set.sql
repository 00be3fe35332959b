-- Sets a gate up, or changes what it says; what its rate has spent stays. Index: gates_pkey.
INSERT INTO mainspring.gates (scope, name, concurrency, rate_count, rate_period, rate_burst)
VALUES ($1::text, $2::text, $3::integer, $4::integer, $5::interval, $6::integer)
ON CONFLICT (scope, name) DO UPDATE SET
    concurrency = excluded.concurrency, rate_count = excluded.rate_count, rate_period = excluded.rate_period,
    rate_burst = excluded.rate_burst
