-- Makes outboxes that are not there, with their lines, and where these stand at the beginning. Whoever makes the same one
-- waits until we have committed. Index: outboxes_name_key.
WITH made AS (
    INSERT INTO mainspring.outboxes (name, partitions, created_at)
    SELECT name, partitions, coalesce($1::timestamptz, statement_timestamp())
    FROM unnest($2::text[], $3::integer[]) AS new (name, partitions) ORDER BY name
    ON CONFLICT (name) DO NOTHING
    RETURNING id, partitions
),
lines AS (
    INSERT INTO mainspring.outbox_lines (line, outbox)
    SELECT id * 64 + number, id FROM made CROSS JOIN generate_series(0, partitions - 1) AS number
    RETURNING line
)
INSERT INTO mainspring.outbox_stands (line, revision, cursor, given, width, attempts, error)
SELECT line, 0, 0, 0, 0, 0, '' FROM lines
