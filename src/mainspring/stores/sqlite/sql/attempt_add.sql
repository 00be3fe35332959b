-- An attempt that did not succeed.
INSERT INTO mainspring_attempts (
    number, lease, attempt, node, event, started_at, ended_at, seconds, error, reason
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
