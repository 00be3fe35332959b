-- What earlier attempts of these jobs have saved, and their last errors. Index: traces_pkey.
SELECT job, saved, error FROM mainspring.traces WHERE job = ANY ($1::uuid[])
