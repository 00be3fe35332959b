-- The message that was published under a text. Index: primary key.
SELECT number FROM mainspring_unique_texts WHERE outbox = ? AND text = ?
