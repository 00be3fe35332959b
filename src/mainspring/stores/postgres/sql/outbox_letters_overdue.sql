-- Holds dead letters that somebody reprocesses whose deadline has passed, by deadline, those that nobody else holds.
-- Index: outbox_letters_overdue.
SELECT id FROM mainspring.outbox_letters AS letters
WHERE state = 'reprocessing' AND deadline <= coalesce($1::timestamptz, statement_timestamp())
        AND ($2::bigint[] IS NULL OR letters.id = ANY ($2))
        AND (
            $3::text IS NULL
            OR letters.line / 64 = (SELECT outboxes.id FROM mainspring.outboxes WHERE outboxes.name = $3)
        )
        AND ($4::integer IS NULL OR letters.line % 64 = $4)
        AND ($5::text IS NULL OR letters.type = $5) AND ($6::bytea IS NULL OR letters.key = $6)
ORDER BY deadline, id LIMIT $7::bigint
FOR UPDATE SKIP LOCKED
