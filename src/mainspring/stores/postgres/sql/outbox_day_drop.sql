-- Drops the table of one day of the log that is empty; `outbox_messages_day` stands for its name. For an instant nobody can
-- publish meanwhile; so it does not wait for whoever is at it for long, and tries again another time.
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '20ms', true);
    LOCK TABLE mainspring.outbox_messages IN ACCESS EXCLUSIVE MODE;
    IF NOT EXISTS (SELECT FROM mainspring.outbox_messages_day) THEN
        DROP TABLE mainspring.outbox_messages_day;
    END IF;
EXCEPTION
    WHEN undefined_table OR lock_not_available OR query_canceled OR deadlock_detected THEN NULL;
END
$$
