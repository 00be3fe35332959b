-- Forgets the tallies of one span that begin earlier. Index: tallies_pkey.
DELETE FROM mainspring.tallies WHERE span = $1::interval AND began_at < $2::timestamptz
