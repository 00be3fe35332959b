-- Gives up dead letters, which are held; says how many. Index: outbox_letters_pkey.
WITH done AS (
    UPDATE mainspring.outbox_letters
    SET state = 'discarded', completed_at = coalesce($1::timestamptz, statement_timestamp()) WHERE id = ANY ($2::bigint[])
    RETURNING 1
)
SELECT count(*) FROM done
