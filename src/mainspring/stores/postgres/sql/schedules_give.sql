-- Gives schedules to other owners; each is held by this transaction. Index: schedules_pkey.
UPDATE mainspring.schedules SET owner = new.owner
FROM unnest($1::text[], $2::bytea[]) AS new (name, owner)
WHERE schedules.name = ANY (ARRAY[new.name])
