-- The first line of the audit log that comes after so many, walking back from a place. Index: audit_pkey.
SELECT id FROM mainspring.audit WHERE id < $1::bigint ORDER BY id DESC LIMIT 1 OFFSET $2::bigint
