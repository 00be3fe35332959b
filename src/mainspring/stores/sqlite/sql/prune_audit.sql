-- Lines of the audit log that are past their time. Index: audit_by_time.
SELECT id FROM mainspring_audit INDEXED BY mainspring_audit_by_time WHERE at <= ? ORDER BY at LIMIT ?
