-- Keys of a task that were freed, or whose time has come: they are looked at now. Indexes: freed_by_task, keys_by_look.
WITH freed AS (DELETE FROM mainspring.freed WHERE task = $2::text RETURNING key),
opened AS (
    UPDATE mainspring.keys SET look_at = NULL
    WHERE task = $2 AND look_at <= coalesce($1::timestamptz, statement_timestamp())
    RETURNING key
)
SELECT key FROM freed UNION SELECT key FROM opened
