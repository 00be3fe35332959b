-- Lines of keys that nobody waits in any more; a line without a key is permanent as its lane is. Index: primary key.
DELETE FROM mainspring_strands
WHERE id IN (SELECT value FROM json_each(?)) AND head_at IS NULL AND key IS NOT NULL
