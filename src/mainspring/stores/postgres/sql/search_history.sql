-- The same as search_active.sql, over jobs that have finished. What is hidden is walked over, too. Where an error is
-- looked for ($13) it brings those as well. Index: history_by_id in each part.
WITH seen AS MATERIALIZED (
    SELECT
        id, enqueued_at, CASE WHEN $14::boolean THEN payload END AS payload,
        CASE WHEN $13::boolean THEN error END AS error, (
            keep_until > (SELECT pruned_until FROM mainspring.rules)
            AND ($3::text[] IS NULL OR state = ANY ($3))
            AND ($4::text IS NULL OR queue = $4)
            AND ($5::text IS NULL OR task = $5)
            AND ($6::bytea IS NULL OR position($6 IN facts) > 0)
            AND ($7::text IS NULL OR cause = $7)
            AND ($8::bytea IS NULL OR key = $8)
            AND ($9::text IS NULL OR node = $9)
            AND ($10::timestamptz IS NULL OR enqueued_at >= $10)
            AND ($11::timestamptz IS NULL OR enqueued_at < $11)
            AND ($12::uuid IS NULL OR parent = $12)
            AND (error IS NOT NULL OR NOT $13)
        ) AS fits
    FROM mainspring.history WHERE id <= $1::uuid ORDER BY id DESC LIMIT $2::bigint
)
SELECT
    (SELECT count(*) FROM seen), (SELECT id FROM seen ORDER BY id DESC OFFSET greatest($2 - 1, 0) LIMIT 1),
    (SELECT enqueued_at FROM seen ORDER BY id LIMIT 1), ARRAY(SELECT id FROM seen WHERE fits ORDER BY id DESC),
    CASE WHEN $14 THEN ARRAY(SELECT payload FROM seen WHERE fits ORDER BY id DESC) END,
    CASE WHEN $13 THEN ARRAY(SELECT error FROM seen WHERE fits ORDER BY id DESC) END
