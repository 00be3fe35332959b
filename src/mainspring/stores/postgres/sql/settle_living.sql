-- Which of these nodes are alive; with the last row, which of these jobs are probes of breakers; and what time it is.
-- Indexes: nodes_id_key, breakers_by_probe.
SELECT id, coalesce($1::timestamptz, statement_timestamp()), NULL::uuid[]
FROM mainspring.nodes WHERE id = ANY ($2::text[]) AND alive
UNION ALL
SELECT
    NULL, coalesce($1, statement_timestamp()),
    ARRAY(SELECT probe_job FROM mainspring.breakers WHERE probe_job = ANY ($3::uuid[]))
