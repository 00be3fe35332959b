-- What is declared of queues. Index: primary key.
SELECT name, concurrency FROM mainspring_gates WHERE scope = 'queue'
