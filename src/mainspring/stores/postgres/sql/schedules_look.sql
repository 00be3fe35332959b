-- Schedules by their names, each with its newest open runs; a last row, without a name, says what time it is. Indexes:
-- positions_pkey, runs_open.
SELECT
    coalesce($1::timestamptz, statement_timestamp()), schedule, revision, next_at, waits, last_end, record,
    ARRAY(
        SELECT id FROM mainspring.runs
        WHERE runs.schedule = position.schedule AND is_open
        ORDER BY id DESC LIMIT $3::bigint
    )
FROM unnest($2::text[]) AS schedules (name) CROSS JOIN LATERAL (
    SELECT * FROM mainspring.positions WHERE positions.schedule = schedules.name ORDER BY revision DESC LIMIT 1
) AS position
UNION ALL
SELECT coalesce($1, statement_timestamp()), NULL, NULL, NULL, NULL, NULL, NULL, NULL
