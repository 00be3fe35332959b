-- Makes the table of one day of history; `history_day` and the two instants stand for its own. Attached, which lets
-- everyone go on who writes to another day, and not made as a part, which would not. Waits for nobody for long: who
-- holds history in an open transaction would hold up all that come behind us, and there is time to try again.
DO $$
DECLARE
    owner text := (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'mainspring.history'::regclass);
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    CREATE TABLE mainspring.history_day (LIKE mainspring.history);
    IF owner <> current_user THEN
        EXECUTE format('ALTER TABLE mainspring.history_day OWNER TO %I', owner);
    END IF;
    ALTER TABLE mainspring.history
        ATTACH PARTITION mainspring.history_day FOR VALUES FROM ('first instant') TO ('last instant');
EXCEPTION
    -- Somebody else made it, somebody is in the way, or a row of that day has just gone to `history_rest`.
    WHEN duplicate_table OR unique_violation OR lock_not_available OR query_canceled OR check_violation THEN NULL;
END
$$
