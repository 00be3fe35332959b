-- Empties the table of one day of the log whose messages are all delivered; `outbox_messages_day` and the two instants stand
-- for its own. It looks whether that is so, and again once it is locked, when nobody can be under way who has written there;
-- its lock wait is short. A message that is in no chunk, although by the last one's snapshot it should be, was
-- published in another history of this cluster: its line is marked as foreign, so that the next look gives it a number. That
-- is checked before the lock, by EXCEPT: it reads all of the day once. Our connections use no hash or merge joins, and a
-- nested loop would read all numbers of the day for each message. Emptied and not dropped: a drop would wait for every
-- transaction that has published anything. A check that is cancelled raises.
DO $$
BEGIN
    FOR time IN 1..2 LOOP
        IF EXISTS (
            SELECT FROM mainspring.outbox_lines AS lines
            CROSS JOIN LATERAL (
                SELECT cursor FROM mainspring.outbox_stands AS stands
                WHERE stands.line = lines.line ORDER BY stands.revision DESC LIMIT 1
            ) AS stand
            LEFT JOIN LATERAL (
                SELECT snapshot, cluster FROM mainspring.outbox_chunks AS chunks
                WHERE chunks.line = lines.line ORDER BY chunks.last DESC LIMIT 1
            ) AS head ON true
            WHERE head.cluster <> (SELECT system_identifier FROM pg_control_system())
                OR pg_snapshot_xmax(head.snapshot) > pg_snapshot_xmax(pg_current_snapshot())
                OR EXISTS (
                    SELECT FROM mainspring.outbox_chunks AS chunks
                    WHERE chunks.line = lines.line AND chunks.last > stand.cursor
                        AND chunks.since < 'last instant'::timestamptz AND chunks.until >= 'first instant'::timestamptz
                )
                OR EXISTS (
                    SELECT FROM mainspring.outbox_messages_day AS messages
                    WHERE messages.line = lines.line AND messages.xid >= coalesce(pg_snapshot_xmax(head.snapshot), '0')
                )
                OR EXISTS (
                    SELECT FROM pg_snapshot_xip(head.snapshot) AS xip (xid) CROSS JOIN LATERAL (
                        SELECT FROM mainspring.outbox_messages_day AS messages
                        WHERE messages.line = lines.line AND messages.xid = xip.xid LIMIT 1
                    ) AS late
                )
        ) THEN
            RETURN;
        END IF;
        IF time = 1 THEN
            WITH missed AS MATERIALIZED (
                SELECT DISTINCT line FROM (
                    SELECT line, number FROM mainspring.outbox_messages_day
                    EXCEPT
                    SELECT line, unnest(numbers) FROM mainspring.outbox_chunks
                    WHERE since < 'last instant'::timestamptz AND until >= 'first instant'::timestamptz
                ) AS unnumbered
            )
            UPDATE mainspring.outbox_chunks AS chunks SET cluster = 0
            FROM missed WHERE chunks.line = missed.line AND chunks.last = (
                SELECT max(heads.last) FROM mainspring.outbox_chunks AS heads WHERE heads.line = missed.line
            );
            IF FOUND THEN
                RETURN;
            END IF;
            PERFORM set_config('lock_timeout', '10ms', true);
            LOCK TABLE mainspring.outbox_messages_day IN ACCESS EXCLUSIVE MODE;
        END IF;
    END LOOP;
    TRUNCATE mainspring.outbox_messages_day;
EXCEPTION
    WHEN undefined_table OR lock_not_available OR deadlock_detected THEN NULL;
END
$$
