-- The rules of all claims, and their version, as one moment sees them. Reads all gates and pauses, of which there are few.
SELECT
    version, ARRAY(SELECT queue FROM mainspring.pauses ORDER BY queue),
    ARRAY(SELECT scope FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT name FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT concurrency FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_count FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_period FROM mainspring.gates ORDER BY scope, name),
    ARRAY(SELECT rate_burst FROM mainspring.gates ORDER BY scope, name)
FROM mainspring.rules
