-- Takes dead letters, which are held, for reprocessing, in the order in which they are given.
-- Indexes: outbox_letters_pkey, outboxes_pkey.
WITH taken AS (
    UPDATE mainspring.outbox_letters AS letters
    SET state = 'reprocessing', term = term + 1, deadline = coalesce($1::timestamptz, statement_timestamp()) + $2::interval
    FROM unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, place)
    WHERE letters.id = wanted.id
    RETURNING letters.*, wanted.place
)
SELECT
    letters.id, outboxes.name, (letters.line % 64)::integer, letters.seq, letters.number, letters.published_at, letters.key,
    letters.type, letters.traceparent, letters.payload, letters.state, letters.attempts, letters.error, letters.failed_at,
    letters.term, letters.deadline, letters.completed_at
FROM taken AS letters JOIN mainspring.outboxes ON outboxes.id = letters.line / 64
ORDER BY letters.place
