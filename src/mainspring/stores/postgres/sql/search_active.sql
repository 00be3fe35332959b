-- Walks back over the jobs that wait or run from a place, over so many at most: how many they were; the last of them,
-- NULL if there are no older ones, and when it was enqueued; and which fit, the newest first, with their arguments
-- where $14 asks for them. Whether a job has a tag or an error is told for sure by itself alone; here those are left
-- out that cannot have it. Index: jobs_pkey.
WITH seen AS MATERIALIZED (
    SELECT
        id, enqueued_at, CASE WHEN $14::boolean THEN payload END AS payload, (
            ($3::text[] IS NULL OR state = ANY ($3))
            AND ($4::text IS NULL OR queue = $4)
            AND ($5::text IS NULL OR task = $5)
            AND ($6::bytea IS NULL OR position($6 IN facts) > 0)
            AND $7::text IS NULL
            AND ($8::bytea IS NULL OR key = $8)
            AND ($9::text IS NULL OR node = $9)
            AND ($10::timestamptz IS NULL OR enqueued_at >= $10)
            AND ($11::timestamptz IS NULL OR enqueued_at < $11)
            AND ($12::uuid IS NULL OR parent = $12)
            AND (traced OR NOT $13::boolean)
        ) AS fits
    FROM mainspring.jobs WHERE id <= $1::uuid ORDER BY id DESC LIMIT $2::bigint
)
SELECT
    (SELECT count(*) FROM seen), (SELECT id FROM seen ORDER BY id DESC OFFSET greatest($2 - 1, 0) LIMIT 1),
    (SELECT enqueued_at FROM seen ORDER BY id LIMIT 1), ARRAY(SELECT id FROM seen WHERE fits ORDER BY id DESC),
    CASE WHEN $14 THEN ARRAY(SELECT payload FROM seen WHERE fits ORDER BY id DESC) END,
    NULL::bytea[]
