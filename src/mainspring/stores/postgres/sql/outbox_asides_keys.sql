-- Which of these keys have messages of a line that are set aside, by their places.
-- Indexes: outboxes_name_key, outbox_asides_by_key.
SELECT one.place
FROM mainspring.outboxes CROSS JOIN unnest($3::bytea[]) WITH ORDINALITY AS one (digest, place)
CROSS JOIN LATERAL (
    SELECT FROM mainspring.outbox_asides AS asides
    WHERE asides.line = outboxes.id * 64 + $2::integer AND asides.digest = one.digest LIMIT 1
) AS found
WHERE outboxes.name = $1::text
