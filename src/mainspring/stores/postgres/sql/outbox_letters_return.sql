-- Ends the reprocessing of dead letters badly, of those that are reprocessed under these terms; says how many.
-- Index: outbox_letters_pkey.
WITH done AS (
    UPDATE mainspring.outbox_letters AS letters
    SET state = 'pending', deadline = NULL, attempts = attempts + 1, error = $4::bytea,
        failed_at = coalesce($1::timestamptz, statement_timestamp())
    FROM unnest($2::bigint[], $3::bigint[]) AS one (id, term)
    WHERE letters.id = one.id AND letters.term = one.term AND letters.deadline IS NOT NULL
    RETURNING 1
)
SELECT count(*) FROM done
