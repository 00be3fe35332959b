-- What has to be given up with jobs that are deleted. Index: primary keys.
SELECT jobs.id, jobs.lane, payloads.key, payloads.unique_key
FROM json_each(?) AS wanted
CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = wanted.value
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
