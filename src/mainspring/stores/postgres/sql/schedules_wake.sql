-- Has schedules looked at that wait for the end of a run, and have none that could end; each was written by this
-- transaction, at the revision given. One that was looked at again meanwhile is at another. Index: positions_pkey.
UPDATE mainspring.positions SET next_at = coalesce($1::timestamptz, statement_timestamp())
FROM unnest($2::text[], $3::bigint[]) AS idle (schedule, revision)
WHERE positions.schedule = idle.schedule AND positions.revision = idle.revision
