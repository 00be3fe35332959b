-- All nodes, the dead ones that are not pruned yet too, with how many jobs each runs, by the time they joined.
-- Index: jobs_running.
SELECT term, counter, alive, joined_at, renewed_at, record, (
    SELECT count(*) FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id
)
FROM mainspring.nodes AS nodes ORDER BY joined_at, term
