-- The keys of a task whose rate allows the next start by now, or only after a time that no rate needs: the clock was
-- ahead when that was written. Index: parked_keys_by_time.
SELECT key FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time WHERE task = :task AND opens_at <= :now
UNION
SELECT key FROM mainspring_parked_keys INDEXED BY mainspring_parked_keys_by_time WHERE task = :task AND opens_at > :longest
