-- Holds the jobs that run under these leases on these nodes, while the nodes are alive, so that nobody ends their
-- attempts meanwhile; says which, and marks those of which there is anything to keep. A row that says so already is not
-- written again. Node and state are spelt so that no index can serve them, as in settle_success.sql. Indexes: jobs_pkey, nodes_id_key.
WITH held AS (
    SELECT jobs.id, jobs.lease, jobs.node, jobs.traced, said.leaves
    FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::boolean[]) AS said (job, lease, node, leaves)
    JOIN mainspring.jobs AS jobs ON jobs.id = ANY (ARRAY[said.job])
    WHERE jobs.state || '' = 'running' AND jobs.lease = said.lease AND jobs.node IS NOT DISTINCT FROM said.node
        AND EXISTS (SELECT FROM mainspring.nodes WHERE nodes.id = said.node AND nodes.alive)
    ORDER BY said.job FOR NO KEY UPDATE OF jobs
),
marked AS (
    UPDATE mainspring.jobs SET traced = true
    WHERE id = ANY (ARRAY(SELECT held.id FROM held WHERE held.leaves AND NOT held.traced))
)
SELECT id, lease, node FROM held
