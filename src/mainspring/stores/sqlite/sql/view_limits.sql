-- The queues that operators have limited: a few rows.
SELECT queue, concurrency, set_by FROM mainspring_queue_limits
