-- Puts dead letters, which are held, back at the end of their lines, in the order in which they are given, and resolves them;
-- says how many. Index: outbox_letters_pkey.
WITH done AS (
    UPDATE mainspring.outbox_letters AS letters
    SET state = 'resolved', deadline = NULL, completed_at = coalesce($1::timestamptz, statement_timestamp())
    FROM unnest($2::bigint[]) WITH ORDINALITY AS one (id, place)
    WHERE letters.id = one.id
    RETURNING letters.*, one.place
),
written AS (
    INSERT INTO mainspring.outbox_messages (line, number, published_at, key, type, traceparent, payload)
    SELECT
        line, nextval('mainspring.outbox_numbers'), coalesce($1, clock_timestamp()), key, type, traceparent, payload
    FROM done ORDER BY place
)
SELECT count(*) FROM done
