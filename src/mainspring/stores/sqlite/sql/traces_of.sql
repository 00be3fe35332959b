-- What earlier attempts left behind. Index: primary key.
SELECT number, saved, error FROM mainspring_traces WHERE number IN (SELECT value FROM json_each(?))
