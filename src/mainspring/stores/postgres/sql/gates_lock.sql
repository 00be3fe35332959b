-- Holds gates until the transaction ends, in one order for everyone. What they count may be read only after this.
-- Index: gates_pkey.
SELECT gates.scope, gates.name FROM mainspring.gates
WHERE (gates.scope, gates.name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY gates.scope COLLATE "C", gates.name COLLATE "C" FOR UPDATE
