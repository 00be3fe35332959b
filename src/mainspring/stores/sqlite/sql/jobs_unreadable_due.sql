-- Gives jobs of a line whose time is not a number another time. Index: jobs_waiting.
UPDATE mainspring_jobs SET run_at = ? WHERE strand = ? AND run_at >= ''
