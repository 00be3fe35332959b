-- A page of the audit log, the newest line first, walking back from a place to another and leaving out what is not wanted.
-- Index: audit_pkey.
SELECT id, written_at, who, action, about, count, outcome, detail FROM mainspring.audit
WHERE id < $1::bigint AND id > $2::bigint
    AND ($4::bytea IS NULL OR who = $4)
    AND ($5::bytea IS NULL OR action = $5)
ORDER BY id DESC LIMIT $3::bigint
