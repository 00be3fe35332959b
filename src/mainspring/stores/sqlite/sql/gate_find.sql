-- One gate. Index: primary key.
SELECT scope, name, concurrency, rate_count, rate_period, rate_burst, spent_until FROM mainspring_gates
WHERE scope = ? AND name = ?
