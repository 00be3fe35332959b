-- Keeps changes of phase, the last hundred of each task. Index: breaker_changes_pkey.
WITH new AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[]
    ) AS one (task, term, at, source, target, job, moved_by, reason)
),
trimmed AS (
    DELETE FROM mainspring.breaker_changes AS kept USING new
    WHERE kept.task = new.task AND kept.term <= new.term - $9::bigint
)
INSERT INTO mainspring.breaker_changes (task, term, at, source, target, job, moved_by, reason) SELECT * FROM new
