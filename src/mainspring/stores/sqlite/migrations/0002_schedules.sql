-- Schedules and their runs.
-- oldest code: 2
--
-- Code that does not know runs would end their jobs without ending them, and a schedule that waits for such an end would
-- wait for ever: it does not start any more. Nodes of such code that run already are not told, and have to be stopped
-- before. The policy of a payload may have an eighth member from now on: 1, if the job is that of a run.

-- What is planned. The record is the whole schedule; what stands beside it is looked for, or changed without reading it.
CREATE TABLE mainspring_schedules (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT,                    -- the deployment that declares it; NULL: it was added at run time
    revision INTEGER NOT NULL,
    next_at INTEGER,               -- when to look at it again; NULL: not before something else has happened
    waits INTEGER NOT NULL,        -- 1: the end of a run is awaited, and whoever writes that sets next_at
    is_paused INTEGER NOT NULL,
    last_end INTEGER,
    record BLOB NOT NULL           -- a JSON object
);
CREATE INDEX mainspring_schedules_by_time ON mainspring_schedules (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX mainspring_schedules_by_owner ON mainspring_schedules (owner, name) WHERE owner IS NOT NULL;

-- What happened at slots. One without a reason has a job, of the same id.
CREATE TABLE mainspring_runs (
    id BLOB NOT NULL PRIMARY KEY,
    schedule TEXT NOT NULL,
    slot INTEGER,                  -- NULL: somebody asked for it by hand
    last INTEGER,                  -- the last of several slots in a row
    count INTEGER NOT NULL,
    origin TEXT NOT NULL,
    is_catch_up INTEGER NOT NULL,
    zone TEXT NOT NULL,
    owner TEXT,
    reason TEXT,                   -- why there is no job
    decided_at INTEGER NOT NULL,
    state TEXT,
    finished_at INTEGER,
    error TEXT,
    is_open INTEGER NOT NULL,      -- 1: its job has not ended, or a body of it goes on
    keep_until INTEGER NOT NULL    -- how long it is kept once it is not open
) WITHOUT ROWID;
-- A slot of a schedule has one job at most.
CREATE UNIQUE INDEX mainspring_runs_by_slot ON mainspring_runs (schedule, slot)
    WHERE reason IS NULL AND slot IS NOT NULL;
CREATE INDEX mainspring_runs_of_schedule ON mainspring_runs (schedule, id);
CREATE INDEX mainspring_runs_open ON mainspring_runs (schedule, id) WHERE is_open;
CREATE INDEX mainspring_runs_by_time ON mainspring_runs (keep_until) WHERE NOT is_open;
