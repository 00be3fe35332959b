-- The lines of which something is delivered that may still be there, behind the marks that are given, and from where on;
-- then up to where it is delivered, and the last chunk of each. Last, whether there is anything at all beside the days.
-- Indexes: outbox_stands_pkey, outbox_chunks_pkey.
SELECT
    lines.line, greatest(coalesce(marks.seq, 0), low.first - 1), stand.cursor, head.last,
    pg_relation_size('mainspring.outbox_messages_rest') > 0
FROM mainspring.outbox_lines AS lines
LEFT JOIN unnest($1::bigint[], $2::bigint[]) AS marks (line, seq) ON marks.line = lines.line
CROSS JOIN LATERAL (
    SELECT cursor FROM mainspring.outbox_stands AS stands
    WHERE stands.line = lines.line ORDER BY stands.revision DESC LIMIT 1
) AS stand
CROSS JOIN LATERAL (
    SELECT first FROM mainspring.outbox_chunks AS chunks
    WHERE chunks.line = lines.line AND chunks.last > coalesce(marks.seq, 0) ORDER BY chunks.last LIMIT 1
) AS low
CROSS JOIN LATERAL (
    SELECT last FROM mainspring.outbox_chunks AS chunks
    WHERE chunks.line = lines.line ORDER BY chunks.last DESC LIMIT 1
) AS head
WHERE stand.cursor > greatest(coalesce(marks.seq, 0), low.first - 1)
