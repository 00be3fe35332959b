-- The first line of the audit log about one thing that comes after so many, walking back. Index: audit_by_about.
SELECT id FROM mainspring_audit INDEXED BY mainspring_audit_by_about
WHERE about = :about AND id < :after ORDER BY id DESC LIMIT 1 OFFSET :most
