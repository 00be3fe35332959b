-- Forgets texts of a partition whose messages are neither in the log nor set aside, from the oldest on, if they were taken
-- long ago. Only the first few are looked at: behind one that is young there are younger ones.
-- Indexes: unique_texts_by_number, primary key.
DELETE FROM mainspring_unique_texts WHERE (outbox, text) IN (
    SELECT outbox, text FROM (
        SELECT outbox, text, taken_at FROM mainspring_unique_texts AS texts INDEXED BY mainspring_unique_texts_by_number
        WHERE number > ? AND number <= ?
            AND NOT EXISTS (SELECT 1 FROM mainspring_asides AS asides WHERE asides.number = texts.number)
        ORDER BY number LIMIT ?
    )
    WHERE taken_at <= ?
)
