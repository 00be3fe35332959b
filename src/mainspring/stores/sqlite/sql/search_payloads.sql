-- The payloads of some jobs. Index: primary key.
SELECT payloads.number, payloads.payload
FROM json_each(?) AS wanted CROSS JOIN mainspring_payloads AS payloads ON payloads.number = wanted.value
