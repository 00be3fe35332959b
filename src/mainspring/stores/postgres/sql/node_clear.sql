-- Takes note of nodes that have been dead for some minutes and run nothing any more: no claim of theirs can be under way.
-- Indexes: nodes_uncleared, jobs_running.
UPDATE mainspring.nodes SET cleared = true WHERE term = ANY (ARRAY(
    SELECT term FROM mainspring.nodes AS dead
    WHERE NOT alive AND NOT cleared AND died_at <= coalesce($1::timestamptz, statement_timestamp()) - interval '5 minutes'
        AND (SELECT true FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = dead.id LIMIT 1) IS NULL
    FOR UPDATE SKIP LOCKED
))
