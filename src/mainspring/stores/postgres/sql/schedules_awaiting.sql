-- Which of these schedules wait for the end of a run. Index: positions_pkey.
SELECT ended.schedule
FROM unnest($1::text[]) AS ended (schedule) CROSS JOIN LATERAL (
    SELECT waits FROM mainspring.positions WHERE positions.schedule = ended.schedule ORDER BY revision DESC LIMIT 1
) AS position
WHERE waits
