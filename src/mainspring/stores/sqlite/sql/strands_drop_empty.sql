-- Drops the line of a key if nobody waits in it any more; a line without a key is permanent as its lane is. Index: primary key.
DELETE FROM mainspring_strands
WHERE id = ? AND head_at IS NULL AND key IS NOT NULL
