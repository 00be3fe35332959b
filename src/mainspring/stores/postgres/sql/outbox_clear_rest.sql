-- Deletes messages of a line behind one `seq` and up to another that no day was made for; says how many. For whoever may not
-- drop days it is done with the table of each day too. Indexes: outbox_chunks_pkey, outbox_messages_by_xid.
WITH gone AS (
    DELETE FROM mainspring.outbox_messages_rest WHERE ctid = ANY (ARRAY(
        SELECT messages.ctid
        FROM (
            SELECT * FROM mainspring.outbox_chunks
            WHERE line = $1::bigint AND last > $2::bigint ORDER BY last LIMIT $3::bigint - $2
        ) AS chunks
        CROSS JOIN LATERAL unnest(
            chunks.numbers[greatest($2 - chunks.first + 2, 1)::integer:($3 - chunks.first + 1)::integer],
            chunks.xids[greatest($2 - chunks.first + 2, 1)::integer:($3 - chunks.first + 1)::integer]
        ) AS places (number, xid)
        CROSS JOIN LATERAL (
            SELECT ctid FROM mainspring.outbox_messages_rest
            WHERE line = $1 AND xid = places.xid AND number = places.number OFFSET 0
        ) AS messages
        WHERE chunks.first <= $3
    ))
    RETURNING 1
)
SELECT count(*) FROM gone
