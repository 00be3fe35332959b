-- The line of a lane and a key, or of no key, and where it begins. Index: strands_by_key.
SELECT id, head_at, head_id FROM mainspring_strands INDEXED BY mainspring_strands_by_key WHERE lane = ? AND key IS ?
