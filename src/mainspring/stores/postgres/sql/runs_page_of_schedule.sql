-- As runs_page.sql, those of one schedule. Index: runs_of_schedule.
SELECT
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open
FROM mainspring.runs
WHERE schedule = $6::text AND id <= $1::uuid
    AND ($3::timestamptz IS NULL OR coalesce(last, slot) > $3) AND ($4::timestamptz IS NULL OR slot <= $4)
    AND ($5::boolean IS NULL OR (reason IS NULL) = $5)
ORDER BY id DESC LIMIT $2::bigint
