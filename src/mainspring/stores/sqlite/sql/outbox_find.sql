-- An outbox by its name. Index: outboxes_by_name.
SELECT id, partitions FROM mainspring_outboxes WHERE name = ?
