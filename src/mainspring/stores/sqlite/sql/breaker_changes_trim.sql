-- Forgets changes of terms that are long over. Index: primary key.
DELETE FROM mainspring_breaker_changes WHERE task = ? AND term <= ?
