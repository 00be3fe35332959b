-- A line of the audit log; its id is greater than that of any line before.
INSERT INTO mainspring_audit (at, who, action, about, count, outcome, detail) VALUES (?, ?, ?, ?, ?, ?, ?)
