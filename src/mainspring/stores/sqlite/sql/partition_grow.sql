-- Remembers the last number that a partition has given. Index: primary key.
UPDATE mainspring_partitions SET last = ? WHERE id = ?
