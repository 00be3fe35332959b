-- Lets a rate begin afresh: that of a task or queue, or those of all keys of a task. Indexes: gates_pkey, keys_pkey.
WITH keys AS (UPDATE mainspring.keys SET spent_until = NULL WHERE task = $2::text AND $1::text = 'key')
UPDATE mainspring.gates SET spent_until = NULL WHERE scope = $1 AND name = $2
