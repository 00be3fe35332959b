-- Holds lines until the transaction ends, those that nobody else does. Index: outbox_lines_pkey.
SELECT line FROM mainspring.outbox_lines WHERE line = ANY ($1::bigint[]) ORDER BY line FOR UPDATE SKIP LOCKED
