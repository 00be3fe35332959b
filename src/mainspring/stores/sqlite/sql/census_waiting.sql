-- How many jobs of a lane are due, and how many are not yet, up to a number of each, and since when the first has been
-- due. Of more strands than that, some. Indexes: strands_by_key, jobs_waiting.
SELECT
    (
        SELECT count(*) FROM (
            SELECT 1 FROM (
                SELECT id FROM mainspring_strands INDEXED BY mainspring_strands_by_key
                WHERE lane = :lane AND head_at IS NOT NULL LIMIT :most
            ) AS lines
            CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_waiting
                ON jobs.strand = lines.id AND jobs.run_at <= :now
            LIMIT :most
        )
    ),
    (
        SELECT count(*) FROM (
            SELECT 1 FROM (
                SELECT id FROM mainspring_strands INDEXED BY mainspring_strands_by_key
                WHERE lane = :lane AND head_at IS NOT NULL LIMIT :most
            ) AS lines
            CROSS JOIN mainspring_jobs AS jobs INDEXED BY mainspring_jobs_waiting
                ON jobs.strand = lines.id AND jobs.run_at > :now
            LIMIT :most
        )
    ),
    (
        SELECT min(head_at) FROM (
            SELECT head_at FROM mainspring_strands INDEXED BY mainspring_strands_by_key
            WHERE lane = :lane AND head_at IS NOT NULL LIMIT :most
        )
        WHERE head_at <= :now
    )
