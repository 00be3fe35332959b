-- Says where schedules stand from now on; each is held by this transaction, at the revision given last. Index:
-- positions_pkey.
UPDATE mainspring.positions SET
    revision = new.revision, next_at = new.next_at, waits = new.waits, paused = new.paused, last_end = new.last_end,
    record = new.record
FROM unnest(
    $1::text[], $2::bigint[], $3::timestamptz[], $4::boolean[], $5::boolean[], $6::timestamptz[], $7::bytea[], $8::bigint[]
) AS new (schedule, revision, next_at, waits, paused, last_end, record, before)
WHERE positions.schedule = ANY (ARRAY[new.schedule]) AND positions.revision = new.before
