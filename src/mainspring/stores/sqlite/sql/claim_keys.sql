-- The keys of jobs that have one. Index: payloads' primary key.
SELECT payloads.number, payloads.key
FROM json_each(?) AS wanted CROSS JOIN mainspring_payloads AS payloads ON payloads.number = wanted.value
WHERE payloads.key IS NOT NULL
