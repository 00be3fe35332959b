-- All leases of a node. Walks over everything that it ran while an old snapshot is held open; a renewal asks by ids.
-- Index: jobs_running.
SELECT id, lease, cancel_requested_at FROM mainspring.jobs WHERE state = 'running' AND node = $1::text ORDER BY id
