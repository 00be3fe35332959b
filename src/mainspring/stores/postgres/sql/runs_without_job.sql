-- Makes of runs such as have no job, because another has the unique key. Index: runs_pkey.
UPDATE mainspring.runs SET reason = $2::text, last = slot, is_open = false WHERE id = ANY ($1::uuid[])
