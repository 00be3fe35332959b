-- Sets an operator's limit of a queue, or takes it away; what is declared stays. Index: gates_pkey.
INSERT INTO mainspring.gates (scope, name, limited, limited_by) VALUES ('queue', $1::text, $2::integer, $3::bytea)
ON CONFLICT (scope, name) DO UPDATE SET limited = excluded.limited, limited_by = excluded.limited_by
