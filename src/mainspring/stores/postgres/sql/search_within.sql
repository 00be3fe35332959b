-- Gives the statements that follow in this transaction so many milliseconds each.
SELECT set_config('statement_timeout', $1::bigint::text, true)
