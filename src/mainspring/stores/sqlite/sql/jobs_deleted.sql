-- What has to be let go of with jobs that are deleted. Index: primary keys.
SELECT jobs.id, jobs.lane, jobs.strand, payloads.unique_key
FROM json_each(?) AS wanted
CROSS JOIN mainspring_jobs AS jobs ON jobs.number = wanted.value
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
