-- The places of one attempt. Index: places_by_job.
SELECT scope, name, key FROM mainspring_places WHERE job = ? AND lease = ?
