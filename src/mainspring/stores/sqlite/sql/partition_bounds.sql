-- From where to where a partition has messages. Index: primary key.
SELECT cleared, last FROM mainspring_partitions WHERE id = ?
