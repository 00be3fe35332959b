-- Holds open runs of schedules that are to wait for one, the newest of each; says which, and of whom. Whoever ends one of
-- them comes after this transaction then, and sees that it is awaited. Written and not only locked, so that in a
-- transaction of repeatable reads, which would not see it, that fails. Waits for nobody: a run that another has his hands
-- on counts for nothing. The test is spelt so that only the ids can serve to find them. Indexes: runs_open, runs_pkey.
UPDATE mainspring.runs SET state = runs.state
FROM (
    SELECT id FROM mainspring.runs
    WHERE id = ANY (ARRAY(
        SELECT one.id
        FROM unnest($1::text[]) AS asked (schedule) CROSS JOIN LATERAL (
            SELECT id FROM mainspring.runs
            WHERE runs.schedule = asked.schedule AND is_open
            ORDER BY id DESC LIMIT $2::bigint
        ) AS one
    )) AND is_open::text = 'true'
    ORDER BY id
    FOR UPDATE SKIP LOCKED
) AS held
WHERE runs.id = held.id
RETURNING runs.id, runs.schedule
