-- Lets whoever has a schedule in hand come to an end.
SELECT pg_sleep($1::double precision)
