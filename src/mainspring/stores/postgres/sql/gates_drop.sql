-- Takes a gate away. Index: gates_pkey.
DELETE FROM mainspring.gates WHERE scope = $1::text AND name = $2::text
