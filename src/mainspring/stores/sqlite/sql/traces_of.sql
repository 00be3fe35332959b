-- What earlier attempts left behind. Index: primary key.
SELECT traces.number, traces.saved, traces.error
FROM json_each(?) AS wanted CROSS JOIN mainspring_traces AS traces ON traces.number = wanted.value
