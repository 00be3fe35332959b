-- From here a verb of several statements can be undone, and the rest of the transaction stays.
SAVEPOINT mainspring_verb
