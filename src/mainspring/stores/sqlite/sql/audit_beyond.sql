-- The first line of the audit log that comes after so many, walking back from a place. Index: primary key.
SELECT id FROM mainspring_audit NOT INDEXED WHERE id < :after ORDER BY id DESC LIMIT 1 OFFSET :most
