-- Accounts of keys that have been paid for: the same as none.
DELETE FROM mainspring_spent WHERE (task, key) IN (
    SELECT task, key FROM mainspring_spent WHERE spent_until <= ? LIMIT ?
)
