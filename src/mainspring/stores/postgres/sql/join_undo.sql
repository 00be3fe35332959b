-- Undoes what a verb has written that raised in the middle.
ROLLBACK TO SAVEPOINT mainspring_verb
