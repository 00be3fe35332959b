-- Takes schedules away; each is held by this transaction, at the revision given. Indexes: schedules_pkey, positions_pkey.
WITH gone AS (
    DELETE FROM mainspring.positions USING unnest($1::text[], $2::bigint[]) AS old (schedule, revision)
    WHERE positions.schedule = ANY (ARRAY[old.schedule]) AND positions.revision = old.revision
)
DELETE FROM mainspring.schedules WHERE name = ANY ($1)
