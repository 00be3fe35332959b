-- How many places of a gate are taken. Index: primary key.
SELECT count(*) FROM mainspring_places WHERE scope = ? AND name = ? AND key = ?
