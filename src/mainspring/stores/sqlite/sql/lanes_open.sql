-- Every lane in which something waits that no key's gate holds back, and when the first of it is due. One step for
-- each such lane, however many lines and jobs there are. Index: strands_open.
WITH RECURSIVE lane(id) AS (
    SELECT min(lane) FROM mainspring_strands WHERE head_at IS NOT NULL AND full = 0 AND opens_at IS NULL
    UNION ALL
    SELECT (
        SELECT min(lane) FROM mainspring_strands
        WHERE lane > lane.id AND head_at IS NOT NULL AND full = 0 AND opens_at IS NULL
    )
    FROM lane WHERE lane.id IS NOT NULL
)
SELECT id, (
    SELECT min(head_at) FROM mainspring_strands
    WHERE lane = lane.id AND head_at IS NOT NULL AND full = 0 AND opens_at IS NULL
)
FROM lane WHERE id IS NOT NULL
