-- Writes jobs that go on waiting or running, those of $1; each is held by this transaction. Index: jobs_pkey.
UPDATE mainspring.jobs SET
    lane = new.lane, home = new.home, queue = new.queue, priority = new.priority, state = new.state, parked = false,
    run_at = new.run_at, attempt = new.attempt, granted = new.granted, losses = new.losses, revision = new.revision,
    expires_at = new.expires_at, cancel_requested_at = new.cancel_requested_at,
    settled_by = coalesce(new.settled_by, jobs.settled_by),
    seconds = CASE WHEN new.settled_by IS NULL THEN jobs.seconds ELSE new.seconds END,
    traced = jobs.traced OR new.traced
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::smallint[], $6::text[], $7::timestamptz[], $8::integer[],
    $9::integer[], $10::integer[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::text[],
    $15::double precision[], $16::boolean[]
) AS new (
    id, lane, home, queue, priority, state, run_at, attempt, granted, losses, revision, expires_at, cancel_requested_at,
    settled_by, seconds, traced
)
WHERE jobs.id = ANY (ARRAY[new.id])
