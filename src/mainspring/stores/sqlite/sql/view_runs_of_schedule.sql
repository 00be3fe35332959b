-- A page of the runs of one schedule, newest first, walking back from a place. Index: runs_of_schedule.
SELECT
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open
FROM mainspring_runs INDEXED BY mainspring_runs_of_schedule
WHERE schedule = :schedule AND id < :after
    AND (:with_job IS NULL OR (reason IS NULL) = :with_job)
    AND (:after_slot IS NULL OR coalesce(last, slot) > :after_slot)
    AND (:until_slot IS NULL OR slot <= :until_slot)
ORDER BY id DESC LIMIT :limit
