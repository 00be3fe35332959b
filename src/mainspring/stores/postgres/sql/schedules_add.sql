-- Says where new schedules stand, whose names this transaction has taken in.
INSERT INTO mainspring.positions (schedule, revision, next_at, waits, paused, last_end, record)
SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::timestamptz[], $4::boolean[], $5::boolean[], $6::timestamptz[], $7::bytea[]
)
