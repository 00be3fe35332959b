-- Jobs are claimed from indexes in claim order, and lanes are removed (docs/decisions/0054).
-- oldest code: 10
--
-- Every read of these indexes names one priority, so that future jobs of a priority are never in front of due jobs of a
-- lower one. Each has a condition of its own that is always true: a statement repeats it to name the index that it reads.
-- Without that, the planner reads and sorts another of them, or all of it, where it expects few rows.

-- The indexes come before the update, and the update writes few rows: an index that is created after an update of the same
-- transaction is not used as long as an older transaction runs.

ALTER TABLE mainspring.jobs ADD COLUMN care smallint NOT NULL DEFAULT 0;   -- 1: suspect; 2: other last chance; else 0
ALTER TABLE mainspring.jobs DROP COLUMN lane, DROP COLUMN home;
CREATE INDEX jobs_by_order ON mainspring.jobs ((priority + 0), run_at, id)
    WHERE state <> 'running' AND NOT parked AND care <> 1 AND priority + 0 >= 0;
CREATE INDEX jobs_by_queue ON mainspring.jobs (queue COLLATE "C", priority, run_at, id)
    WHERE state <> 'running' AND NOT parked AND care <> 1 AND queue COLLATE "C" >= '';
CREATE INDEX jobs_by_task ON mainspring.jobs (task COLLATE "C", priority, run_at, id)
    WHERE state <> 'running' AND NOT parked AND care <> 1 AND task COLLATE "C" >= '';
CREATE INDEX jobs_suspect ON mainspring.jobs (priority, run_at, id)
    WHERE state <> 'running' AND NOT parked AND care = 1;
CREATE INDEX jobs_parked ON mainspring.jobs (task, key, queue, priority DESC, run_at, id) WHERE parked;
UPDATE mainspring.jobs SET care = CASE WHEN losses > 0 AND losses >= loss_limit - 1 THEN 1 ELSE 2 END
WHERE losses > 0 AND losses >= loss_limit - 1 OR max_attempts::bigint + granted - attempt <= 1
    OR loss_limit - losses <= 1;
