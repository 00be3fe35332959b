-- Tells who listens that there is something to look at; PostgreSQL sends it with the commit, once for each payload.
SELECT pg_notify($1::text, $2::text)
