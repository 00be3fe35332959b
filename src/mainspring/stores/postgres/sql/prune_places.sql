-- Gives up places that were kept by jobs which are gone, and says how many. Bodies that go on after their attempt has
-- ended are few. Indexes: places_pkey, jobs_pkey, history_by_id.
WITH vacated AS (
    DELETE FROM mainspring.places WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM mainspring.places AS places
        WHERE kept
            AND (SELECT id FROM mainspring.jobs WHERE jobs.id = places.job) IS NULL
            AND (
                SELECT id FROM mainspring.history
                WHERE history.id = places.job AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
            ) IS NULL
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING scope, name, key
),
freed AS (INSERT INTO mainspring.freed (task, key) SELECT name, key FROM vacated WHERE scope = 'key')
SELECT count(*) FROM vacated
