-- The newest finished jobs from a place back, so many at most, that ended in one of these ways, and of one queue or
-- task or both. Steps from kind to kind, and takes so many of each that is wanted: as many looks as there are kinds in
-- each part, whatever else there is. Index: history_by_kind in each part.
WITH RECURSIVE kinds AS (
    (
        SELECT hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))) AS kind, state, queue, task
        FROM mainspring.history
        ORDER BY hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))) LIMIT 1
    )
    UNION ALL
    SELECT beyond.* FROM kinds CROSS JOIN LATERAL (
        SELECT hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))), state, queue, task
        FROM mainspring.history
        WHERE hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))) > kinds.kind
        ORDER BY hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))) LIMIT 1
    ) AS beyond
)
SELECT found.id FROM kinds CROSS JOIN LATERAL (
    SELECT id FROM mainspring.history
    WHERE hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))) = kinds.kind
        AND uuid_send(id) <= uuid_send($1::uuid)
        AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    ORDER BY uuid_send(id) DESC LIMIT $2::bigint
) AS found
WHERE ($3::text[] IS NULL OR kinds.state = ANY ($3))
    AND ($4::text IS NULL OR kinds.queue = $4)
    AND ($5::text IS NULL OR kinds.task = $5)
ORDER BY found.id DESC LIMIT $2
