-- Has keys looked at by the next claim that holds their gate.
INSERT INTO mainspring.freed (task, key) SELECT * FROM unnest($1::text[], $2::bytea[])
