-- A page of the runs with a job of some slots of a schedule, newest first. These slots are read and sorted for every
-- page, and no others: there may be millions of them. Index: runs_by_slot.
SELECT
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open
FROM mainspring_runs INDEXED BY mainspring_runs_by_slot
WHERE schedule = :schedule AND id < :after AND reason IS NULL
    AND slot > :after_slot AND slot <= :until_slot
ORDER BY id DESC LIMIT :limit
