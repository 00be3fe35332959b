-- Holds schedules in the order given, whatever their revisions are by now, and says which of them wait for the end of a
-- run, and where they are. Waits for whoever has one in hand. Index: positions_pkey.
SELECT position.schedule, position.revision
FROM unnest($1::text[]) AS ended (schedule) CROSS JOIN LATERAL (
    SELECT schedule, revision, waits FROM mainspring.positions WHERE positions.schedule = ended.schedule
    ORDER BY revision DESC LIMIT 1
    FOR UPDATE
) AS position
WHERE waits
