-- Takes what schedules have not been told: those that are held by this transaction, and those that are there no more.
-- Indexes: ends_pkey, positions_pkey.
DELETE FROM mainspring.ends
WHERE schedule = ANY ($1::text[])
    AND (schedule = ANY ($2::text[]) OR (
        SELECT revision FROM mainspring.positions WHERE positions.schedule = ends.schedule ORDER BY revision DESC LIMIT 1
    ) IS NULL)
RETURNING schedule, ended_at
