-- Forgets the tallies of a span that begin earlier. Index: primary key.
DELETE FROM mainspring_tallies WHERE span = ? AND at < ?
