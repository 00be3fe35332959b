-- Jobs, nodes, locks and operators' words.
-- oldest code: 1
--
-- Everything is in one schema, called `mainspring` here. What a handler or a user makes up (payloads, keys, errors,
-- log lines) is kept as bytes, text of PostgreSQL's has no NUL; instants as timestamptz, to the microsecond.

CREATE TABLE mainspring.versions (
    version integer NOT NULL,       -- the last migration that was made
    oldest_code integer NOT NULL,   -- code that knows this migration, or a later one, can work with these tables
    changed_at timestamptz NOT NULL
);

-- One row: what every claim looks at, and where history begins.
CREATE TABLE mainspring.rules (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),   -- tells these tables from those of every other store
    version bigint NOT NULL DEFAULT 1,      -- grows with every change of a gate or a pause
    pruned_until timestamptz NOT NULL DEFAULT '-infinity'   -- a finished job whose `keep_until` is not later is gone
);
INSERT INTO mainspring.rules DEFAULT VALUES;

-- The jobs that wait or run; a finished one moves to `history`. One row holds all of a job but what its attempts leave
-- behind: a claim copies it, which for the small payloads that most jobs have costs less than a second table, and
-- PostgreSQL keeps what is larger than 2 kB outside the row anyway.
CREATE TABLE mainspring.jobs (
    id uuid PRIMARY KEY,
    lane bigint,                    -- the line that it can be claimed from; NULL: it runs, or is parked
    home bigint NOT NULL,           -- the lane that it belongs to (lanes.py): queue, task, priority, suspect
    queue text NOT NULL,
    task text NOT NULL,
    priority smallint NOT NULL,
    state text NOT NULL,            -- ready, scheduled, retrying or running
    parked boolean NOT NULL DEFAULT false,  -- its key's gate is shut; it waits outside the line (gates.py)
    run_at timestamptz NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    granted integer NOT NULL DEFAULT 0,
    losses integer NOT NULL DEFAULT 0,
    loss_limit integer NOT NULL,
    lease bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    policy text NOT NULL,           -- backoff and retention, as a JSON list
    expires_at timestamptz,
    cancel_requested_at timestamptz,
    node text,                      -- who holds the lease, or held it last
    settled_by text,                -- who settled the last lease that was settled
    started_at timestamptz,
    seconds double precision,
    enqueued_at timestamptz NOT NULL,
    timeout interval,
    key bytea,
    unique_key bytea,
    unique_period interval,
    unique_on_conflict text,
    parent uuid,
    facts bytea,                    -- a JSON object; NULL: there are none
    traced boolean NOT NULL DEFAULT false,  -- it has rows in traces, attempts or log_lines
    payload bytea NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX jobs_waiting ON mainspring.jobs (lane, run_at, id) WHERE lane IS NOT NULL;
CREATE INDEX jobs_running ON mainspring.jobs (node, started_at) WHERE state = 'running';
CREATE INDEX jobs_parked ON mainspring.jobs (task, key, home, run_at, id) WHERE parked;
CREATE INDEX jobs_by_parent ON mainspring.jobs (parent) WHERE parent IS NOT NULL;

-- Finished jobs, each with everything that belongs to it, so that a whole day can be dropped at once. What no day was
-- made for goes to `history_rest`, from where it is deleted row by row. So does what is kept for longer than there are days
-- ahead (partitions.py), from a part of its own: in `history_rest` it would keep its day from being made later, since a part
-- cannot be added while rows of it are in the default one, and all of that is read, locked, to find out.
CREATE TABLE mainspring.history (
    id uuid NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    priority smallint NOT NULL,
    state text NOT NULL,            -- succeeded, failed or cancelled
    run_at timestamptz NOT NULL,
    attempt integer NOT NULL,
    granted integer NOT NULL,
    losses integer NOT NULL,
    loss_limit integer NOT NULL,
    lease bigint NOT NULL,
    revision bigint NOT NULL,
    max_attempts integer NOT NULL,
    policy text NOT NULL,
    expires_at timestamptz,
    cancel_requested_at timestamptz,
    finished_at timestamptz NOT NULL,
    keep_until timestamptz NOT NULL,
    cause text,
    node text,
    settled_by text,
    started_at timestamptz,
    seconds double precision,
    enqueued_at timestamptz NOT NULL,
    timeout interval,
    key bytea,
    unique_key bytea,
    unique_period interval,
    unique_on_conflict text,
    parent uuid,
    facts bytea,
    payload bytea NOT NULL,
    result bytea,
    saved bytea,
    progress bytea,
    error bytea,
    attempts bytea[],               -- each as in `attempts`, by lease
    log_lines bytea[]
) PARTITION BY RANGE ((
    CASE WHEN keep_until - finished_at > interval '14 days' THEN 'infinity'::timestamptz ELSE keep_until END
));
CREATE TABLE mainspring.history_rest PARTITION OF mainspring.history DEFAULT;
CREATE TABLE mainspring.history_long PARTITION OF mainspring.history FOR VALUES FROM ('infinity') TO (MAXVALUE);
CREATE INDEX history_by_id ON mainspring.history (id);
CREATE INDEX history_failed ON mainspring.history (id) WHERE state = 'failed';
CREATE INDEX history_by_parent ON mainspring.history (parent) WHERE parent IS NOT NULL;
CREATE INDEX history_rest_by_time ON mainspring.history_rest (keep_until);
CREATE INDEX history_long_by_time ON mainspring.history_long (keep_until);

-- What attempts leave behind for later ones, of jobs that wait or run. Most have no row here; `jobs.traced` says so.
CREATE TABLE mainspring.traces (
    job uuid PRIMARY KEY,
    saved bytea,
    progress bytea,                 -- a JSON object
    error bytea                     -- of the last attempt that had one, a JSON object
);
CREATE TABLE mainspring.attempts (
    job uuid NOT NULL,
    lease bigint NOT NULL,
    body bytea NOT NULL,            -- an AttemptView, as a JSON object
    PRIMARY KEY (job, lease)
);
CREATE TABLE mainspring.log_lines (
    job uuid NOT NULL,
    position bigint NOT NULL,
    body bytea NOT NULL,            -- a LogLine, as a JSON object
    PRIMARY KEY (job, position)
);

CREATE TABLE mainspring.gates (
    scope text NOT NULL,
    name text NOT NULL,
    concurrency integer,
    rate_count integer,
    rate_period interval,
    rate_burst integer,
    spent_until timestamptz,        -- of a task's or a queue's rate
    PRIMARY KEY (scope, name)
);

-- A key of a task whose keys have a gate: what its rate has spent, and when its parked jobs are to be looked at.
CREATE TABLE mainspring.keys (
    task text NOT NULL,
    key bytea NOT NULL,
    spent_until timestamptz,
    look_at timestamptz,
    PRIMARY KEY (task, key)
);
CREATE INDEX keys_by_look ON mainspring.keys (task, look_at) WHERE look_at IS NOT NULL;
CREATE INDEX keys_by_spent ON mainspring.keys (spent_until) WHERE look_at IS NULL;

-- Keys whose place was given up since a claim last looked. Only added to, so that whoever ends a job waits for nobody;
-- the next claim of the task, which holds its gate, takes them and lets their parked jobs back into their lanes.
CREATE TABLE mainspring.freed (
    number bigint GENERATED ALWAYS AS IDENTITY,
    task text NOT NULL,
    key bytea NOT NULL
);
CREATE INDEX freed_by_task ON mainspring.freed (task);

-- What counts against a gate's concurrency: one row for each gate that a running job has passed.
CREATE TABLE mainspring.places (
    scope text NOT NULL,
    name text NOT NULL,
    key bytea NOT NULL,             -- '' but for a keyed gate
    job uuid NOT NULL,
    lease bigint NOT NULL,
    node text NOT NULL,
    kept boolean NOT NULL DEFAULT false,    -- the attempt has ended, its body goes on
    PRIMARY KEY (scope, name, key, job, lease)
);
CREATE INDEX places_by_job ON mainspring.places (job);

-- Who has a unique key. Whether it is taken is read from the job: while that is in `jobs`, and until `taken_until`.
CREATE TABLE mainspring.unique_keys (
    task text NOT NULL,
    key bytea NOT NULL,
    job uuid NOT NULL,
    taken_until timestamptz,
    PRIMARY KEY (task, key)
);
CREATE INDEX unique_keys_by_time ON mainspring.unique_keys (taken_until) WHERE taken_until IS NOT NULL;

CREATE TABLE mainspring.pauses (
    queue text PRIMARY KEY,
    paused_at timestamptz NOT NULL,
    paused_by text NOT NULL,
    reason text NOT NULL
);

CREATE TABLE mainspring.nodes (
    term bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    counter bigint NOT NULL DEFAULT 0,
    alive boolean NOT NULL DEFAULT true,
    joined_at timestamptz NOT NULL,
    renewed_at timestamptz NOT NULL,
    died_at timestamptz,
    cleared boolean NOT NULL DEFAULT false, -- it has been dead for a while, and nothing is left of what it ran
    record bytea NOT NULL           -- what the node says about itself, a JSON object
) WITH (fillfactor = 50);
CREATE INDEX nodes_dead ON mainspring.nodes (died_at) WHERE NOT alive;
CREATE INDEX nodes_uncleared ON mainspring.nodes (id) WHERE NOT alive AND NOT cleared;

-- Ids of nodes that were pruned: none of them is given out again.
CREATE TABLE mainspring.past_nodes (id text PRIMARY KEY);

-- When a live node last knew a task that it has parted from.
CREATE TABLE mainspring.known_tasks (
    task text PRIMARY KEY,
    last_known timestamptz NOT NULL
);

CREATE TABLE mainspring.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node text NOT NULL,
    word bytea NOT NULL,            -- what is asked, a JSON object
    given_at timestamptz NOT NULL,
    done_at timestamptz,
    answer bytea
);
CREATE INDEX orders_by_node ON mainspring.orders (node, id);

-- Terms come from one sequence for all locks, so that a lock that was pruned does not begin again.
CREATE SEQUENCE mainspring.lock_terms;
CREATE TABLE mainspring.locks (
    name text PRIMARY KEY,
    holder text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamptz NOT NULL
);
