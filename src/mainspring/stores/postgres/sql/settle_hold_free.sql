-- As settle_hold.sql, but leaves out jobs that another transaction holds; returns those that are held. Index: jobs_pkey.
SELECT id FROM mainspring.jobs WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED
