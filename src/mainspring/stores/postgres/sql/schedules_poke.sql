-- Has schedules looked at that waited for the end of a run, now that one has ended; each is held by this transaction, at
-- the revision given. Index: positions_pkey.
UPDATE mainspring.positions SET
    revision = positions.revision + 1, waits = false, last_end = $1::timestamptz,
    next_at = CASE WHEN paused THEN next_at ELSE $1 END
FROM unnest($2::text[], $3::bigint[]) AS awaiting (schedule, revision)
WHERE positions.schedule = awaiting.schedule AND positions.revision = awaiting.revision
