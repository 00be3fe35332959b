-- The last number that a partition has given. Index: primary key.
SELECT last FROM mainspring_partitions WHERE id = ?
