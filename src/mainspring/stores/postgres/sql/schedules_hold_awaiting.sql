-- Holds schedules in the order given, whatever their revisions are by now, and says where they are. Waits for nobody: one
-- that another has in hand is left out. Index: positions_pkey.
SELECT position.schedule, position.revision, position.waits, position.last_end
FROM unnest($1::text[]) AS ended (schedule) CROSS JOIN LATERAL (
    SELECT schedule, revision, waits, last_end FROM mainspring.positions WHERE positions.schedule = ended.schedule
    ORDER BY revision DESC LIMIT 1
    FOR UPDATE SKIP LOCKED
) AS position
