-- The open lines of a lane that begin with a time that is not a number. Index: strands_open.
SELECT id FROM mainspring_strands
WHERE lane = ? AND head_at >= '' AND full = 0 AND opens_at IS NULL
