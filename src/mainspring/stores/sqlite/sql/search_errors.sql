-- The last errors of those of some jobs that have one. Index: primary key.
SELECT traces.number, traces.error
FROM json_each(?) AS wanted CROSS JOIN mainspring_traces AS traces ON traces.number = wanted.value
WHERE traces.error IS NOT NULL
