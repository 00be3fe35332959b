-- Adds lines to the audit log, in order. Index: audit_pkey.
INSERT INTO mainspring.audit (written_at, who, action, about, count, outcome, detail)
SELECT coalesce($1::timestamptz, statement_timestamp()), who, action, about, count, outcome, detail
FROM unnest($2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bytea[], $7::bytea[])
    WITH ORDINALITY AS new (who, action, about, count, outcome, detail, place)
ORDER BY place
