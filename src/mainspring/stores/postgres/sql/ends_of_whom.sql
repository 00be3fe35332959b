-- Which schedules have not been told of the end of a run, some of them, and what time it is. Index: ends_pkey.
SELECT schedule, coalesce($1::timestamptz, statement_timestamp())
FROM (SELECT DISTINCT schedule FROM mainspring.ends ORDER BY schedule LIMIT $2::bigint) AS untold
