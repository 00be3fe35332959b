-- As schedules_page.sql, those of one owner. Who that is, is spelt as a range, so that only their own index has the order:
-- the other one would read all names to find those of an owner. Indexes: schedules_by_owner, positions_pkey, runs_open.
SELECT
    coalesce($1::timestamptz, statement_timestamp()), schedule, revision, next_at, waits, last_end, record,
    ARRAY(
        SELECT id FROM mainspring.runs
        WHERE runs.schedule = position.schedule AND is_open
        ORDER BY id DESC LIMIT $3::bigint
    )
FROM (
    SELECT name FROM mainspring.schedules WHERE (owner, name) > ($5::bytea, $2::text) AND owner <= $5
    ORDER BY owner, name LIMIT $4::bigint
) AS schedules CROSS JOIN LATERAL (
    SELECT * FROM mainspring.positions WHERE positions.schedule = schedules.name ORDER BY revision DESC LIMIT 1
) AS position
UNION ALL
SELECT coalesce($1, statement_timestamp()), NULL, NULL, NULL, NULL, NULL, NULL, NULL
