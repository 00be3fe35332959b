-- Schedules that are due, the longest first, from a place on; each with its newest open runs. A last row, without a name,
-- says when the first one comes up that is not among them, whether some have not been told of the end of a run, and when
-- all of this was read. Indexes: positions_due, runs_open, ends_pkey.
WITH clock AS MATERIALIZED (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now),
due AS MATERIALIZED (
    SELECT schedule, revision, next_at, waits, last_end, record FROM mainspring.positions
    WHERE (next_at, schedule) > ($2::timestamptz, $3::text) AND next_at <= (SELECT now FROM clock)
    ORDER BY next_at, schedule LIMIT $4::bigint
)
SELECT
    now, schedule, revision, next_at, waits, last_end, record,
    ARRAY(
        SELECT id FROM mainspring.runs
        WHERE runs.schedule = due.schedule AND is_open
        ORDER BY id DESC LIMIT $5::bigint
    )
FROM due CROSS JOIN clock
UNION ALL
SELECT
    now, NULL, NULL,
    (
        SELECT next_at FROM mainspring.positions WHERE next_at IS NOT NULL AND (next_at, schedule) > ($2, $3)
        ORDER BY next_at, schedule OFFSET (SELECT count(*) FROM due) LIMIT 1
    ),
    EXISTS (SELECT FROM mainspring.ends), now + (clock_timestamp() - statement_timestamp()), NULL, NULL
FROM clock
