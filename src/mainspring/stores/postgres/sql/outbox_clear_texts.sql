-- Forgets texts of messages that are gone from the log, a day after they were published: of those behind an instant and a
-- number, at most so many that are looked at. Returns where it came to, nothing at the end, and how many are gone.
-- Indexes: outbox_texts_by_time, outbox_texts_pkey, outbox_messages_by_xid.
WITH seen AS MATERIALIZED (
    SELECT outbox, digest, line, xid, number, published_at FROM mainspring.outbox_texts
    WHERE published_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '1 day'
        AND (published_at, number) > ($2::timestamptz, $3::bigint)
    ORDER BY published_at, number LIMIT $4::integer
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM mainspring.outbox_texts AS texts USING seen
    WHERE texts.outbox = ANY (ARRAY[seen.outbox]) AND texts.digest = seen.digest AND NOT EXISTS (
        SELECT FROM unnest(ARRAY[seen.xid, '0']) AS written (xid) CROSS JOIN LATERAL (  -- 0: see outbox_number_foreign.sql
            SELECT FROM mainspring.outbox_messages AS messages
            WHERE messages.line = seen.line AND messages.xid = written.xid AND messages.number = seen.number
                AND messages.published_at = seen.published_at
            LIMIT 1
        ) AS found
    )
    RETURNING 1
)
SELECT published_at, number, (SELECT count(*) FROM gone) FROM seen ORDER BY published_at DESC, number DESC LIMIT 1
