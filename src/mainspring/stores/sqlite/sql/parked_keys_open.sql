-- The keys of a task whose rate allows the next start by now, or only after a time that no rate needs: the clock was
-- ahead when that was written. Some of each, those that opened first. Index: parked_keys_by_time.
SELECT key, opens_at FROM (
    SELECT key, opens_at FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time
    WHERE task = :task AND opens_at <= :now
    ORDER BY opens_at LIMIT :limit
)
UNION ALL
SELECT key, 0 FROM (
    SELECT key FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time
    WHERE task = :task AND opens_at > :longest
    ORDER BY opens_at LIMIT :limit
)
