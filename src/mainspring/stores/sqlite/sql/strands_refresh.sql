-- Reads anew where lines begin, after jobs have left them. Indexes: strands' primary key, jobs_waiting.
UPDATE mainspring_strands
SET (head_at, head_id) = (
    SELECT run_at, id FROM mainspring_jobs WHERE strand = mainspring_strands.id ORDER BY run_at, id LIMIT 1
)
WHERE id IN (SELECT value FROM json_each(?))
