-- Forgets a line of the audit log. Index: primary key.
DELETE FROM mainspring_audit WHERE id = ?
