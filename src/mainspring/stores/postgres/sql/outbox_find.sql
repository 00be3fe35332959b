-- Outboxes by their names. Index: outboxes_name_key.
SELECT name, partitions FROM mainspring.outboxes WHERE name = ANY ($1::text[])
