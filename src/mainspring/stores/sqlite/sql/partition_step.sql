-- Writes where the delivery of a partition stands; the revision before was looked at. Index: primary key.
UPDATE mainspring_partitions
SET revision = ?, cursor = ?, holder = ?, given = ?, width = ?, attempts = ?, retry_at = ?, error = ?
WHERE id = ?
