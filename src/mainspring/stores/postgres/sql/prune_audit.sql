-- Deletes lines of the audit log that are older than ninety days, and says how many. Index: audit_by_time.
WITH gone AS (
    DELETE FROM mainspring.audit WHERE id = ANY (ARRAY(
        SELECT id FROM mainspring.audit
        WHERE written_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '90 days'
        ORDER BY written_at LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
