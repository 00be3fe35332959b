-- All nodes, the dead ones that are not pruned yet too, with how many jobs each runs, by the time they joined.
-- Indexes: beats_pkey, jobs_running.
SELECT nodes.term, beat.counter, alive, joined_at, beat.renewed_at, record, (
    SELECT count(*) FROM mainspring.jobs WHERE jobs.state = 'running' AND jobs.node = nodes.id
), revision
FROM mainspring.nodes AS nodes CROSS JOIN LATERAL (
    SELECT counter, renewed_at FROM mainspring.beats WHERE beats.term = nodes.term ORDER BY counter DESC LIMIT 1
) AS beat
ORDER BY joined_at, nodes.term
