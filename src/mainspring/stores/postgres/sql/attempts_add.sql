-- Keeps attempts that did not succeed, and of each job the last so many. Index: attempts_pkey.
WITH added AS (
    INSERT INTO mainspring.attempts (job, lease, body) SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])
)
DELETE FROM mainspring.attempts USING unnest($1, $2) AS new (job, lease)
WHERE attempts.job = ANY (ARRAY[new.job]) AND attempts.ctid = ANY (ARRAY(
    SELECT ctid FROM mainspring.attempts AS older WHERE older.job = new.job ORDER BY older.lease DESC OFFSET $4::integer
))
