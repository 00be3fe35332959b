-- The queues that stand still.
SELECT queue FROM mainspring_pauses
