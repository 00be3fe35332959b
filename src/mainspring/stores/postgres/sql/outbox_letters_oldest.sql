-- Holds dead letters that are pending, or whose deadline has passed, the oldest failure first, those that nobody else holds.
-- Looks at all whose deadline has passed. Indexes: outbox_letters_by_state, outbox_letters_overdue, outbox_letters_pkey.
SELECT id FROM mainspring.outbox_letters
WHERE completed_at IS NULL AND (deadline IS NULL OR deadline <= coalesce($1::timestamptz, statement_timestamp()))
    AND id = ANY (ARRAY(
        SELECT found.id
        FROM (
            SELECT pending.id, pending.failed_at
            FROM unnest(ARRAY['pending']) AS wanted (state) CROSS JOIN LATERAL (
                SELECT letters.id, letters.failed_at FROM mainspring.outbox_letters AS letters
                WHERE letters.state = wanted.state
                    AND ($2::bigint[] IS NULL OR letters.id = ANY ($2))
                    AND (
                        $3::text IS NULL
                        OR letters.line / 64 = (SELECT outboxes.id FROM mainspring.outboxes WHERE outboxes.name = $3)
                    )
                    AND ($4::integer IS NULL OR letters.line % 64 = $4)
                    AND ($5::text IS NULL OR letters.type = $5) AND ($6::bytea IS NULL OR letters.key = $6)
                ORDER BY letters.failed_at, letters.id LIMIT $7::bigint
            ) AS pending
            UNION ALL
            SELECT letters.id, letters.failed_at FROM mainspring.outbox_letters AS letters
            WHERE letters.state = 'reprocessing' AND letters.deadline <= coalesce($1, statement_timestamp())
                AND ($2 IS NULL OR letters.id = ANY ($2))
                AND (
                    $3 IS NULL
                    OR letters.line / 64 = (SELECT outboxes.id FROM mainspring.outboxes WHERE outboxes.name = $3)
                )
                AND ($4 IS NULL OR letters.line % 64 = $4)
                AND ($5 IS NULL OR letters.type = $5) AND ($6 IS NULL OR letters.key = $6)
        ) AS found
        ORDER BY found.failed_at, found.id LIMIT $7
    ))
ORDER BY failed_at, id
FOR UPDATE SKIP LOCKED
