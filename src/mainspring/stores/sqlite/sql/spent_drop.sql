-- Forgets what the keys of a task have spent: their rate has changed. Index: primary key.
DELETE FROM mainspring_spent WHERE task = ?
