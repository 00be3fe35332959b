-- Takes a gate away. Index: primary key.
DELETE FROM mainspring_gates WHERE scope = ? AND name = ?
