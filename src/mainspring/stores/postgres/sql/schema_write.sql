-- Says how the tables stand from now on.
INSERT INTO mainspring.versions (version, oldest_code, changed_at)
VALUES ($1::integer, $2::integer, statement_timestamp())
