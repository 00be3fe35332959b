-- Keys of a task that were freed, or whose time has come: they are looked at now; and what time that is, in a row of its
-- own. Indexes: freed_by_task, keys_by_look.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
freed AS (DELETE FROM mainspring.freed WHERE task = $2::text RETURNING key),
opened AS (
    UPDATE mainspring.keys SET look_at = NULL WHERE task = $2 AND look_at <= (SELECT now FROM clock) RETURNING key
)
SELECT key, now FROM (SELECT key FROM freed UNION SELECT key FROM opened) AS due CROSS JOIN clock
UNION ALL
SELECT NULL, now FROM clock
