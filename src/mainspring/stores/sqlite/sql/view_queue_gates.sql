-- What is declared of queues. Index: primary key.
SELECT name, concurrency, rate_count, rate_period, rate_burst FROM mainspring_gates WHERE scope = 'queue'
