-- When rates of keys of a task allow the next start, and in which lane, the earliest first. Index: parked_keys_by_time.
SELECT lane, opens_at FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time
WHERE task = ? AND opens_at IS NOT NULL
ORDER BY opens_at LIMIT ?
