-- Writes the version of the tables, into the row where there is one: a node that joins meanwhile waits for this row, and
-- finds it changed. With a new one it would find none.
WITH changed AS (
    UPDATE mainspring.versions
    SET version = $1::integer, oldest_code = $2::integer, changed_at = statement_timestamp() RETURNING version
)
INSERT INTO mainspring.versions (version, oldest_code, changed_at)
SELECT $1, $2, statement_timestamp() WHERE NOT EXISTS (SELECT FROM changed)
