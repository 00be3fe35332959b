-- What the rate of a key has spent. Index: primary key.
SELECT spent_until FROM mainspring_spent WHERE task = ? AND key = ?
