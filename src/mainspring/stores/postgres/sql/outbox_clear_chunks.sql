-- Deletes chunks of lines whose messages are gone, never the last one of a line, of the first so many in each that are behind
-- a mark; returns how far that has come in each line, and how many are gone. Index: outbox_chunks_pkey.
WITH gone AS (
    DELETE FROM mainspring.outbox_chunks WHERE ctid = ANY (ARRAY(
        SELECT low.ctid
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS wanted (line, above, upto)
        CROSS JOIN LATERAL (
            SELECT last FROM mainspring.outbox_chunks AS chunks
            WHERE chunks.line = wanted.line ORDER BY chunks.last DESC LIMIT 1
        ) AS head
        CROSS JOIN LATERAL (
            SELECT ctid, last, until FROM mainspring.outbox_chunks AS chunks
            WHERE chunks.line = wanted.line AND chunks.last > wanted.above AND chunks.last <= wanted.upto
            ORDER BY chunks.last LIMIT $5::integer
        ) AS low
        WHERE low.last < head.last AND low.until < $4::timestamptz
    ))
    RETURNING line, last
)
SELECT line, max(last), count(*) FROM gone GROUP BY line
