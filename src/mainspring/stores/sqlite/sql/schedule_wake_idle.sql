-- Has a schedule looked at again that waits for the end of a run, and has none that is open. Indexes: primary key,
-- runs_open.
UPDATE mainspring_schedules SET next_at = :now
WHERE name = :name AND waits AND NOT is_paused
    AND NOT EXISTS (
        SELECT 1 FROM mainspring_runs INDEXED BY mainspring_runs_open
        WHERE schedule = :name AND is_open
    )
