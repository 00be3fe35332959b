-- Runs of one schedule that have a job, for slots between two instants, the newest first, up to an id. Reads those of these
-- slots and no others, since who asks for them asks for few. Index: runs_by_slot.
SELECT
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open
FROM mainspring.runs
WHERE schedule = $5::text AND slot > $3::timestamptz AND slot <= $4::timestamptz AND reason IS NULL
    AND id <= $1::uuid
ORDER BY id DESC LIMIT $2::bigint
