-- One row if jobs may be parked at all.
SELECT 1 FROM mainspring_parked_keys LIMIT 1
