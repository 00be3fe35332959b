-- The places that a node keeps for an attempt that has ended. Index: places_by_job.
SELECT scope, name, key FROM mainspring_places WHERE job = ? AND lease = ? AND node = ? AND kept = 1
