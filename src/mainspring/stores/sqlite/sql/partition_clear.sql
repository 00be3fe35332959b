-- Remembers up to where messages have been cleared away. Index: primary key.
UPDATE mainspring_partitions SET cleared = ? WHERE id = ?
