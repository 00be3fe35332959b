-- Schedules and their runs.
-- oldest code: 2
--
-- Code that knows only the first migration would end jobs of schedules without a word to their runs: it does not start any
-- more. Nodes of such code that run already are not told, and have to be stopped before.

-- Which there are; names are sorted as Python sorts them, whatever the database's own order is.
CREATE TABLE mainspring.schedules (
    name text COLLATE "C" PRIMARY KEY,
    owner bytea                     -- which deployment declares it; NULL: it was added at run time
);
CREATE INDEX schedules_by_owner ON mainspring.schedules (owner, name) WHERE owner IS NOT NULL;

-- Where each of them stands: one row, written with every slot. The revision is part of the key, so that nobody has to
-- step over the dead: a row of which there have been 86,400 since somebody began a transaction and forgot it, a day at
-- one slot a second, is found as quickly as ever, by its revision or as the one with the highest. With the name alone as
-- the key each look at it took 10 ms by then, and each write too.
CREATE TABLE mainspring.positions (
    schedule text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,       -- grows with every change
    next_at timestamptz,            -- when it is to be looked at; NULL: not before something else has happened
    waits boolean NOT NULL,         -- the end of a run is awaited
    paused boolean NOT NULL,
    last_end timestamptz,           -- when a run ended that was awaited
    record bytea NOT NULL,          -- all of the schedule, a JSON object; where a column says something else, that is right
    PRIMARY KEY (schedule, revision)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX positions_due ON mainspring.positions (next_at, schedule) WHERE next_at IS NOT NULL;

-- What happened at slots. One that made a job has the job's id.
CREATE TABLE mainspring.runs (
    id uuid PRIMARY KEY,
    schedule text COLLATE "C" NOT NULL,
    slot timestamptz,               -- NULL: somebody asked for it by hand
    last timestamptz,               -- of several slots in a row that made no job
    count bigint NOT NULL,
    origin text NOT NULL,           -- slot, backfill or manual
    is_catch_up boolean NOT NULL,
    zone text NOT NULL,
    owner bytea,
    reason text,                    -- why it made no job; NULL: it made one
    decided_at timestamptz NOT NULL,
    state text,                     -- how its job ended: succeeded, failed or cancelled
    finished_at timestamptz,
    error bytea,                    -- a line of text
    is_open boolean NOT NULL,       -- its job has not ended, or a body of it goes on
    keep_until timestamptz NOT NULL -- from when on it may go, unless it is open
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX runs_of_schedule ON mainspring.runs (schedule, id);
CREATE UNIQUE INDEX runs_by_slot ON mainspring.runs (schedule, slot) WHERE reason IS NULL AND slot IS NOT NULL;
CREATE INDEX runs_open ON mainspring.runs (schedule, id) WHERE is_open;
CREATE INDEX runs_by_time ON mainspring.runs (keep_until) WHERE NOT is_open;
CREATE INDEX runs_lingering ON mainspring.runs (id) WHERE is_open AND state IS NOT NULL;

-- Ends of runs that a schedule waits for, of which it could not be told because somebody else had it in hand. Only added
-- to, so that whoever ends a run waits for nobody; whoever looks for what is due tells the schedule then.
CREATE TABLE mainspring.ends (
    schedule text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    ended_at timestamptz NOT NULL,
    PRIMARY KEY (schedule, number)
);

-- What was answered to whoever moved schedules, for an hour: if the answer was lost with its connection, it is asked for
-- again. Ids grow with time.
CREATE TABLE mainspring.moved (
    id uuid PRIMARY KEY,
    accepted boolean[] NOT NULL,    -- of each move of the call, in order
    moved_at timestamptz NOT NULL
);
