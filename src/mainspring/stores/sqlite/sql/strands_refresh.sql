-- Reads anew where a line begins, after jobs have left it. Indexes: strands' primary key, jobs_waiting.
UPDATE mainspring_strands
SET (head_at, head_id) = (
    SELECT run_at, id FROM mainspring_jobs WHERE strand = mainspring_strands.id ORDER BY run_at, id LIMIT 1
)
WHERE id = ?
