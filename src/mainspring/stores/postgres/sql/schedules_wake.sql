-- Has schedules looked at that waited for the end of a run, now that one has ended, and says when it did; each is held by
-- this transaction, at the revision given. Index: positions_pkey.
UPDATE mainspring.positions SET
    revision = positions.revision + 1, waits = false, last_end = awaiting.last_end,
    next_at = CASE WHEN paused THEN next_at ELSE $1::timestamptz END
FROM unnest($2::text[], $3::bigint[], $4::timestamptz[]) AS awaiting (schedule, revision, last_end)
WHERE positions.schedule = ANY (ARRAY[awaiting.schedule]) AND positions.revision = awaiting.revision
