-- Holds dead letters that are pending, by id, those that nobody else holds. Index: outbox_letters_pending.
SELECT id FROM mainspring.outbox_letters AS letters
WHERE state = 'pending' AND coalesce($1::timestamptz, statement_timestamp()) IS NOT NULL
        AND ($2::bigint[] IS NULL OR letters.id = ANY ($2))
        AND (
            $3::text IS NULL
            OR letters.line / 64 = (SELECT outboxes.id FROM mainspring.outboxes WHERE outboxes.name = $3)
        )
        AND ($4::integer IS NULL OR letters.line % 64 = $4)
        AND ($5::text IS NULL OR letters.type = $5) AND ($6::bytea IS NULL OR letters.key = $6)
ORDER BY id LIMIT $7::bigint
FOR UPDATE SKIP LOCKED
