-- A page of dead letters, newest failure first. Indexes: outbox_letters_by_state, outboxes_pkey.
SELECT
    letters.id, outboxes.name, (letters.line % 64)::integer, letters.seq, letters.number, letters.published_at, letters.key,
    letters.type, letters.traceparent, letters.payload, letters.state, letters.attempts, letters.error, letters.failed_at,
    letters.term, letters.deadline, letters.completed_at
FROM unnest($1::text[]) AS wanted (state)
CROSS JOIN LATERAL (
    SELECT * FROM mainspring.outbox_letters AS letters
    WHERE letters.state = wanted.state AND (letters.failed_at, letters.id) < ($2::timestamptz, $3::bigint)
        AND ($5::bigint[] IS NULL OR letters.id = ANY ($5))
        AND (
            $6::text IS NULL
            OR letters.line / 64 = (SELECT outboxes.id FROM mainspring.outboxes WHERE outboxes.name = $6)
        )
        AND ($7::integer IS NULL OR letters.line % 64 = $7)
        AND ($8::text IS NULL OR letters.type = $8) AND ($9::bytea IS NULL OR letters.key = $9)
    ORDER BY letters.failed_at DESC, letters.id DESC LIMIT $4::integer
) AS letters
JOIN mainspring.outboxes ON outboxes.id = letters.line / 64
ORDER BY letters.failed_at DESC, letters.id DESC LIMIT $4
