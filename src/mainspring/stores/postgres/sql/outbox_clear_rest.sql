-- Deletes messages of a line behind one `seq` and up to another that no day was made for; says how many.
-- Indexes: outbox_chunks_pkey, outbox_messages_by_xid.
WITH places AS MATERIALIZED (
    SELECT places.number, places.xid, chunks.since, chunks.until
    FROM mainspring.outbox_chunks AS chunks CROSS JOIN LATERAL unnest(
        chunks.numbers[greatest($2::bigint - chunks.first + 2, 1)::integer:($3::bigint - chunks.first + 1)::integer],
        chunks.xids[greatest($2 - chunks.first + 2, 1)::integer:($3 - chunks.first + 1)::integer]
    ) AS places (number, xid)
    WHERE chunks.line = $1::bigint AND chunks.last > $2 AND chunks.first <= $3
    ORDER BY chunks.last LIMIT $3 - $2
),
gone AS (
    DELETE FROM mainspring.outbox_messages_rest AS messages USING places
    WHERE messages.line = $1 AND messages.xid = places.xid AND messages.number = places.number
    RETURNING 1
)
SELECT count(*) FROM gone
