-- Writes down what the rates of tasks and queues have spent; each gate is held by this transaction. Index: gates_pkey.
UPDATE mainspring.gates SET spent_until = new.spent_until
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS new (scope, name, spent_until)
WHERE gates.scope = new.scope AND gates.name = new.name
