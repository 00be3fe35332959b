-- Takes in the names of new schedules, in the order given, and says which of them were not there. Index: schedules_pkey.
INSERT INTO mainspring.schedules (name, owner)
SELECT name, owner FROM unnest($1::text[], $2::bytea[]) AS new (name, owner)
ON CONFLICT (name) DO NOTHING
RETURNING name
