-- The first lines of a lane that are due and open, in order. Index: strands_open.
SELECT id, key, head_at, head_id FROM mainspring_strands
WHERE lane = ? AND head_at <= ? AND full = 0 AND opens_at IS NULL
ORDER BY head_at, head_id LIMIT ?
