-- The newest finished jobs of one queue and task from a place back, so many at most, that ended in one of these ways.
-- Index: history_by_kind in each part.
SELECT found.id
FROM unnest(coalesce($3::text[], ARRAY['succeeded', 'failed', 'cancelled'])) AS ended (state) CROSS JOIN LATERAL (
    SELECT id FROM mainspring.history
    WHERE hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0)))
            = hashtextextended($5::text, hashtextextended($4::text, hashtextextended(ended.state, 0)))
        AND uuid_send(id) <= uuid_send($1::uuid)
        AND keep_until + interval '0' > (SELECT pruned_until FROM mainspring.rules)
    ORDER BY uuid_send(id) DESC LIMIT $2::bigint
) AS found
ORDER BY found.id DESC LIMIT $2
