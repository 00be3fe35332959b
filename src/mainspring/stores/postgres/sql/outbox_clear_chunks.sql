-- Deletes chunks of lines whose messages are gone, never the last one of a line, up to a limit for each; returns how far that
-- has come in each line. Index: outbox_chunks_pkey.
WITH gone AS (
    DELETE FROM mainspring.outbox_chunks AS chunks
    USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS wanted (line, above, upto)
    WHERE chunks.line = wanted.line AND chunks.last = ANY (ARRAY(
        SELECT last FROM mainspring.outbox_chunks AS low
        WHERE low.line = wanted.line AND low.last > wanted.above AND low.last <= wanted.upto
            AND low.until < $4::timestamptz
            AND low.last < (
                SELECT last FROM mainspring.outbox_chunks AS head WHERE head.line = wanted.line
                ORDER BY head.last DESC LIMIT 1
            )
        ORDER BY low.last LIMIT $5::integer
    ))
    RETURNING chunks.line, chunks.last
)
SELECT line, max(last), count(*) FROM gone GROUP BY line
