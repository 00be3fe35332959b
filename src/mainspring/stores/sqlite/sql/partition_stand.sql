-- What decides whether a step of delivery is accepted. Index: primary key.
SELECT revision, holder, last FROM mainspring_partitions WHERE id = ?
