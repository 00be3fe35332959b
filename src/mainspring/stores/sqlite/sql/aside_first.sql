-- The first message with a key that is set aside. Index: asides_by_key.
SELECT number, retry_at FROM mainspring_asides WHERE partition = ? AND key = ? ORDER BY number LIMIT 1
