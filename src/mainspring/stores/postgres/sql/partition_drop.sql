-- Drops the table of one day of history; `history_day` stands for its name. For an instant nobody can look at history
-- meanwhile; so it does not wait for whoever has it open, and tries again another time.
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '200ms', true);
    DROP TABLE mainspring.history_day;
EXCEPTION
    WHEN undefined_table OR lock_not_available OR query_canceled THEN NULL;
END
$$
