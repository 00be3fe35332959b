-- Writes runs, over what is there under their ids. Index: runs_pkey.
INSERT INTO mainspring.runs (
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open, keep_until
)
SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[], $7::boolean[], $8::text[],
    $9::bytea[], $10::text[], $11::timestamptz[], $12::text[], $13::timestamptz[], $14::bytea[], $15::boolean[],
    $16::timestamptz[]
)
ON CONFLICT (id) DO UPDATE SET
    schedule = excluded.schedule, slot = excluded.slot, last = excluded.last, count = excluded.count,
    origin = excluded.origin, is_catch_up = excluded.is_catch_up, zone = excluded.zone, owner = excluded.owner,
    reason = excluded.reason, decided_at = excluded.decided_at, state = excluded.state,
    finished_at = excluded.finished_at, error = excluded.error, is_open = excluded.is_open,
    keep_until = excluded.keep_until
