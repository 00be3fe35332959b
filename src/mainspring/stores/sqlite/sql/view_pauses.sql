-- The queues that stand still, and why.
SELECT queue, paused_at, paused_by, reason FROM mainspring_pauses
