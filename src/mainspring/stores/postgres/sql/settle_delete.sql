-- Takes a job away with all that belongs to it, wherever it is. Both places are put together apart: if it had to wait for
-- somebody who has the key in hand, PostgreSQL would look at them again, which it cannot where they are deleted from.
-- Indexes: jobs_pkey, history_by_id, traces_pkey, attempts_pkey, log_lines_pkey, places_by_job, unique_keys_pkey.
WITH there AS (
    DELETE FROM mainspring.jobs WHERE id = $1::uuid RETURNING id, task, unique_key
),
done AS (
    DELETE FROM mainspring.history WHERE id = $1 RETURNING id, task, unique_key
),
traces AS (DELETE FROM mainspring.traces WHERE job = $1),
attempts AS (DELETE FROM mainspring.attempts WHERE job = $1),
log_lines AS (DELETE FROM mainspring.log_lines WHERE job = $1),
vacated AS (DELETE FROM mainspring.places WHERE job = $1 RETURNING scope, name, key),
freed AS (INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key'),
gone AS MATERIALIZED (SELECT * FROM there UNION ALL SELECT * FROM done)
DELETE FROM mainspring.unique_keys AS held USING gone
WHERE held.task = ANY (ARRAY[gone.task]) AND held.key = gone.unique_key AND held.job = gone.id
