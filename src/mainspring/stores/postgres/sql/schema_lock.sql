-- Has those who migrate the same schema go one after the other. An advisory lock, which nothing else here uses, because
-- before the first migration there is no row that could be locked; of the transaction's own kind, which works behind
-- PgBouncer too.
SELECT pg_advisory_xact_lock(hashtextextended('mainspring migrates ' || $1::text, 0))
