-- Holds lines until the transaction ends, those that nobody else does. Index: outbox_lines_pkey.
-- Its commit need not wait for the disk: nothing is handed out before a step of the line is committed, which takes what
-- was written before it to the disk, too; and if a crash comes first, the same messages get their numbers afresh.
SELECT line, set_config('synchronous_commit', 'off', true)
FROM mainspring.outbox_lines WHERE line = ANY ($1::bigint[]) ORDER BY line FOR UPDATE SKIP LOCKED
