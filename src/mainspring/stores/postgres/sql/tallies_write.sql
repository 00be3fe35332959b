-- Writes tallies, each in the place of the one that is there; they come in one order from everyone. Index: tallies_pkey.
INSERT INTO mainspring.tallies (span, began_at, counted_by, body)
SELECT * FROM unnest($1::interval[], $2::timestamptz[], $3::text[], $4::bytea[])
ON CONFLICT (span, began_at, counted_by) DO UPDATE SET body = excluded.body
