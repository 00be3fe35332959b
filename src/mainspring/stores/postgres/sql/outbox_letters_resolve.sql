-- Ends the reprocessing of dead letters well, of those that are reprocessed under these terms; says how many.
-- Index: outbox_letters_pkey.
WITH done AS (
    UPDATE mainspring.outbox_letters AS letters
    SET state = 'resolved', deadline = NULL, completed_at = coalesce($1::timestamptz, statement_timestamp())
    FROM unnest($2::bigint[], $3::bigint[]) AS one (id, term)
    WHERE letters.id = one.id AND letters.term = one.term AND letters.deadline IS NOT NULL
    RETURNING 1
)
SELECT count(*) FROM done
