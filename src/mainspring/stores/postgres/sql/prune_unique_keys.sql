-- Frees those of the keys that are held whose job is not active, and says how many. One whose job is active needs no
-- period any more: its end frees it, and until then nobody has to step over it. Indexes: unique_keys_pkey, jobs_pkey.
WITH held AS MATERIALIZED (
    SELECT keys.task, keys.key, EXISTS (SELECT FROM mainspring.jobs WHERE jobs.id = keys.job) AS is_active
    FROM unnest($1::text[], $2::bytea[]) AS these (task, key)
    JOIN mainspring.unique_keys AS keys ON keys.task = ANY (ARRAY[these.task]) AND keys.key = these.key
),
active AS (
    UPDATE mainspring.unique_keys AS keys SET taken_until = NULL FROM held
    WHERE held.is_active AND keys.task = ANY (ARRAY[held.task]) AND keys.key = held.key
),
free AS (
    DELETE FROM mainspring.unique_keys AS keys USING held
    WHERE NOT held.is_active AND keys.task = ANY (ARRAY[held.task]) AND keys.key = held.key
    RETURNING 1
)
SELECT count(*) FROM free
