-- Writes a run, over what is there under its id.
INSERT INTO mainspring_runs (
    id, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
    is_open, keep_until
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    schedule = excluded.schedule, slot = excluded.slot, last = excluded.last, count = excluded.count,
    origin = excluded.origin, is_catch_up = excluded.is_catch_up, zone = excluded.zone, owner = excluded.owner,
    reason = excluded.reason, decided_at = excluded.decided_at, state = excluded.state,
    finished_at = excluded.finished_at, error = excluded.error, is_open = excluded.is_open,
    keep_until = excluded.keep_until
