-- How many jobs of a queue may run at a time, as an operator has it. Index: primary key.
SELECT concurrency FROM mainspring_queue_limits WHERE queue = ?
