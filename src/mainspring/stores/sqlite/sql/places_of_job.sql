-- The places of all attempts of a job. Index: places_by_job.
SELECT scope, name, key, lease FROM mainspring_places WHERE job = ?
