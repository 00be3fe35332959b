-- The last runs of some schedules, so many of each, the newest first. Index: runs_of_schedule.
SELECT
    found.id, asked.schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at,
    error, is_open
FROM unnest($1::text[]) AS asked (schedule) CROSS JOIN LATERAL (
    SELECT
        id, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error, is_open
    FROM mainspring.runs WHERE runs.schedule = asked.schedule
    ORDER BY id DESC LIMIT $2::bigint
) AS found
ORDER BY asked.schedule, found.id DESC
