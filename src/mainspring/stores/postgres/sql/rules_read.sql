-- The rules of all claims, and their version, as one moment sees them. Reads all gates, pauses and breakers, of which there
-- are few. An operator's limit holds in place of the declared one.
SELECT
    version, ARRAY(SELECT queue FROM mainspring.pauses ORDER BY queue),
    ARRAY(SELECT scope FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT name FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT coalesce(limited, concurrency) FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_count FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_period FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_burst FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT task FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT threshold FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT cooldown FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT phase FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT term FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT opened_at FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT probe_job FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT probe_lease FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task),
    ARRAY(SELECT forced FROM mainspring.breakers WHERE threshold IS NOT NULL ORDER BY task)
FROM mainspring.rules
