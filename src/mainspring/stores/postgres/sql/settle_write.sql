-- Writes jobs that go on waiting or running, those of $1; each is held by this transaction. Index: jobs_pkey.
UPDATE mainspring.jobs SET
    care = new.care, queue = new.queue, priority = new.priority, state = new.state, parked = false,
    run_at = new.run_at, attempt = new.attempt, granted = new.granted, losses = new.losses, revision = new.revision,
    expires_at = new.expires_at, cancel_requested_at = new.cancel_requested_at,
    settled_by = coalesce(new.settled_by, jobs.settled_by),
    seconds = CASE WHEN new.settled_by IS NULL THEN jobs.seconds ELSE new.seconds END,
    traced = jobs.traced OR new.traced
FROM unnest(
    $1::uuid[], $2::smallint[], $3::text[], $4::smallint[], $5::text[], $6::timestamptz[], $7::integer[], $8::integer[],
    $9::integer[], $10::bigint[], $11::timestamptz[], $12::timestamptz[], $13::text[], $14::double precision[],
    $15::boolean[]
) AS new (
    id, care, queue, priority, state, run_at, attempt, granted, losses, revision, expires_at, cancel_requested_at,
    settled_by, seconds, traced
)
WHERE jobs.id = ANY (ARRAY[new.id])
