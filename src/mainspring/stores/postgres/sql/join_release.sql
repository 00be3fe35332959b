-- Takes away our savepoint, so that many verbs in one transaction leave none behind.
RELEASE SAVEPOINT mainspring_verb
