-- The newest cancelled jobs from a place back, so many at most. Index: history_ended_badly in each part.
SELECT id FROM mainspring.history
WHERE state = 'cancelled' AND id <= $1::uuid AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
ORDER BY id DESC LIMIT $2::bigint
