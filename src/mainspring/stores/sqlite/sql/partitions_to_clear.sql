-- Partitions, with how far they are cleared away, and may be. All of them are read: there are few.
SELECT id, cleared, min(cursor, last) FROM mainspring_partitions ORDER BY id
