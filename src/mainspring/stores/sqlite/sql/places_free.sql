-- Gives up one place. Index: primary key.
DELETE FROM mainspring_places WHERE scope = ? AND name = ? AND key = ? AND job = ? AND lease = ?
