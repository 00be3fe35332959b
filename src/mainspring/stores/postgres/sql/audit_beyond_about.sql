-- The first line of the audit log about one thing that comes after so many, walking back. Index: audit_by_about.
SELECT id FROM mainspring.audit
WHERE hashtextextended(encode(about, 'hex'), 0) = hashtextextended(encode($3::bytea, 'hex'), 0) AND about = $3
    AND id < $1::bigint
ORDER BY id DESC LIMIT 1 OFFSET $2::bigint
