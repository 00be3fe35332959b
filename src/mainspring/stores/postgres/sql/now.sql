-- What time it is, as every statement sees it.
SELECT coalesce($1::timestamptz, statement_timestamp())
