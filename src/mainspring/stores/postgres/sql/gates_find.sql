-- A gate, held until the transaction ends. Index: gates_pkey.
SELECT scope, name, concurrency, rate_count, rate_period, rate_burst, limited FROM mainspring.gates
WHERE scope = $1::text AND name = $2::text FOR UPDATE
