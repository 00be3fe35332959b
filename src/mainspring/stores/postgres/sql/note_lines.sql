-- Adds lines to what jobs logged, which are held, and keeps the last so many of each. Lines come with their place among
-- the new ones of their job. Index: log_lines_pkey.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS line (job, place, body)
),
ends AS MATERIALIZED (
    SELECT job, before, before + count(*) AS after
    FROM new CROSS JOIN LATERAL (
        SELECT coalesce(max(position), 0) AS before FROM mainspring.log_lines WHERE log_lines.job = new.job
    ) AS last
    GROUP BY job, before
),
trimmed AS (
    DELETE FROM mainspring.log_lines USING ends
    WHERE log_lines.job = ANY (ARRAY[ends.job]) AND log_lines.position <= ends.after - $4::bigint
)
INSERT INTO mainspring.log_lines (job, position, body)
SELECT new.job, ends.before + new.place, new.body FROM new JOIN ends ON ends.job = new.job
