-- Jobs that are about to be claimed, with all that an attempt needs. Index: primary keys.
SELECT
    jobs.number, jobs.id, jobs.state, jobs.run_at, jobs.attempt, jobs.losses, jobs.lease, jobs.revision,
    payloads.max_attempts, payloads.loss_limit, payloads.policy, payloads.payload, payloads.enqueued_at,
    jobs.granted, jobs.expires_at, payloads.timeout, payloads.key, payloads.parent, payloads.facts, jobs.lane
FROM json_each(?) AS wanted
CROSS JOIN mainspring_jobs AS jobs NOT INDEXED ON jobs.number = wanted.value
CROSS JOIN mainspring_payloads AS payloads ON payloads.number = jobs.number
