-- All leases of a node. Scans every job that it ran while an old snapshot is held open; a renewal reads by ids.
-- Index: jobs_running.
SELECT id, lease, cancel_requested_at FROM mainspring.jobs WHERE state = 'running' AND node = $1::text ORDER BY id
