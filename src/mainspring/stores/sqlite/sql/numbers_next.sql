-- The first job from a number on, and when it was enqueued. Index: primary key.
SELECT number, enqueued_at FROM mainspring_payloads WHERE number >= ? ORDER BY number LIMIT 1
