-- Breakers whose probe does not run any more. Indexes: breakers_by_probe, jobs_pkey.
SELECT task FROM mainspring.breakers
WHERE probe_job IS NOT NULL AND NOT EXISTS (
    SELECT FROM mainspring.jobs
    WHERE jobs.id = breakers.probe_job AND jobs.lease = breakers.probe_lease AND jobs.state || '' = 'running'
)
LIMIT $1::integer
