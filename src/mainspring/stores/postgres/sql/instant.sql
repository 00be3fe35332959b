-- What time it is there, at this very moment.
SELECT clock_timestamp()
