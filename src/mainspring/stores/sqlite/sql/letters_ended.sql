-- Dead letters that ended long ago. Index: dead_letters_ended.
SELECT id FROM mainspring_dead_letters INDEXED BY mainspring_dead_letters_ended
WHERE completed_at <= ? ORDER BY completed_at LIMIT ?
