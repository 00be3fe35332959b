-- A page of the audit log about one thing, the newest line first: the page of a job asks for it again and again.
-- Index: audit_by_about.
SELECT id, written_at, who, action, about, count, outcome, detail FROM mainspring.audit
WHERE hashtextextended(encode(about, 'hex'), 0) = hashtextextended(encode($6::bytea, 'hex'), 0) AND about = $6
    AND id < $1::bigint AND id > $2::bigint
    AND ($4::bytea IS NULL OR who = $4)
    AND ($5::bytea IS NULL OR action = $5)
ORDER BY id DESC LIMIT $3::bigint
