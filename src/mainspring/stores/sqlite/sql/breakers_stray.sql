-- Breakers whose probe does not run any more. Indexes: breakers_by_probe, jobs_by_id.
SELECT task FROM mainspring_breakers AS breakers
WHERE probe_job IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM mainspring_jobs WHERE id = breakers.probe_job AND lease = breakers.probe_lease AND state = 'running'
)
LIMIT ?
