-- Jobs, nodes, locks and operators' words.
-- oldest code: 1
--
-- The file may be the user's own database: everything here begins with mainspring_, and nothing about the file itself
-- is changed. Instants are integers, microseconds since 1970 in UTC; lengths of time are microseconds; ids of jobs are
-- the 16 bytes of the UUID.

CREATE TABLE mainspring_schema (
    version INTEGER NOT NULL,      -- the last migration that was made
    oldest_code INTEGER NOT NULL,  -- code that knows this migration, or a later one, can work with these tables
    changed_at INTEGER NOT NULL
);

-- What a job changes in its life. Narrow, because every claim and every settle writes the whole row again: with the
-- payload in another table, claim and settle of jobs of 1 kB cost 12.5 µs together instead of 20.9.
CREATE TABLE mainspring_jobs (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    state TEXT NOT NULL,
    lane INTEGER NOT NULL,
    strand INTEGER,                -- the line that it waits in; NULL: it does not wait
    run_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    granted INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    lease INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    cancel_requested_at INTEGER,
    finished_at INTEGER,
    keep_until INTEGER,
    cause TEXT,
    node TEXT,                     -- who holds the lease, or held it last
    settled_by TEXT,               -- who settled the last lease that was settled
    started_at INTEGER,
    seconds REAL,
    result BLOB
);
CREATE UNIQUE INDEX mainspring_jobs_by_id ON mainspring_jobs (id);
CREATE INDEX mainspring_jobs_waiting ON mainspring_jobs (strand, run_at, id) WHERE strand IS NOT NULL;
CREATE INDEX mainspring_jobs_running ON mainspring_jobs (node, losses) WHERE state = 'running';
CREATE INDEX mainspring_jobs_finished ON mainspring_jobs (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX mainspring_jobs_failed ON mainspring_jobs (id) WHERE state = 'failed';

-- What a job brings with it and never changes.
CREATE TABLE mainspring_payloads (
    number INTEGER PRIMARY KEY,
    max_attempts INTEGER NOT NULL,
    loss_limit INTEGER NOT NULL,
    policy TEXT NOT NULL,          -- backoff and retention, as a JSON list
    enqueued_at INTEGER NOT NULL,
    timeout INTEGER,
    key TEXT,
    unique_key TEXT,               -- a JSON object
    parent BLOB,
    facts TEXT,                    -- a JSON object; NULL: there are none
    payload BLOB NOT NULL
);
CREATE INDEX mainspring_payloads_by_parent ON mainspring_payloads (parent) WHERE parent IS NOT NULL;

-- What attempts leave behind for later ones. Most jobs have no row here.
CREATE TABLE mainspring_traces (
    number INTEGER PRIMARY KEY,
    saved BLOB,
    percent REAL,
    message TEXT,
    error TEXT                     -- of the last attempt that had one, a JSON object
);

CREATE TABLE mainspring_attempts (
    number INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    node TEXT NOT NULL,
    event TEXT NOT NULL,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    seconds REAL,
    error TEXT,
    reason TEXT NOT NULL,
    PRIMARY KEY (number, lease)
) WITHOUT ROWID;

CREATE TABLE mainspring_log_lines (
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at INTEGER NOT NULL,
    level TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (number, position)
) WITHOUT ROWID;

-- Everything that decides whether a node may take a job, but for its due time and its key. Few rows, and permanent:
-- whoever has read one may remember it for ever.
CREATE TABLE mainspring_lanes (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    suspect INTEGER NOT NULL,      -- 1: for jobs whose next loss would be their last
    UNIQUE (task, queue, priority, suspect)
);

-- The waiting jobs of one lane and key, as one line: where it begins, and whether its key's gate lets it pass. Written
-- in the same transaction as every change of a waiting job, so that a claim never looks at what it cannot have.
CREATE TABLE mainspring_strands (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    key TEXT,
    head_at INTEGER,               -- run_at and id of its first job; NULL: it is empty, which only one without a key may be
    head_id BLOB,
    full INTEGER NOT NULL DEFAULT 0,   -- 1: as many jobs run with this key as may
    opens_at INTEGER               -- when the key's rate lets the next one start; NULL: now
);
CREATE UNIQUE INDEX mainspring_strands_by_key ON mainspring_strands (lane, key);
CREATE INDEX mainspring_strands_open ON mainspring_strands (lane, head_at, head_id)
    WHERE head_at IS NOT NULL AND full = 0 AND opens_at IS NULL;
CREATE INDEX mainspring_strands_shut ON mainspring_strands (lane, opens_at)
    WHERE opens_at IS NOT NULL AND full = 0;

CREATE TABLE mainspring_gates (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    concurrency INTEGER,
    rate_count INTEGER,
    rate_period INTEGER,
    rate_burst INTEGER,
    spent_until INTEGER,           -- of a task's or a queue's rate
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;

-- The same for each key of a keyed rate.
CREATE TABLE mainspring_spent (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    spent_until INTEGER NOT NULL,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;

-- What counts against a gate's concurrency: one row for each gate that a running job has passed.
CREATE TABLE mainspring_places (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,             -- '' but for a keyed gate
    job BLOB NOT NULL,
    lease INTEGER NOT NULL,
    node TEXT NOT NULL,
    kept INTEGER NOT NULL DEFAULT 0,   -- 1: the attempt has ended, its body goes on
    PRIMARY KEY (scope, name, key, job, lease)
) WITHOUT ROWID;
CREATE INDEX mainspring_places_by_job ON mainspring_places (job);

-- Who has a unique key. Whether it is taken is read from the job; this row only says until when it stays so afterwards.
CREATE TABLE mainspring_unique_keys (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    job BLOB NOT NULL,
    taken_until INTEGER,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;
CREATE INDEX mainspring_unique_keys_by_time ON mainspring_unique_keys (taken_until) WHERE taken_until IS NOT NULL;

CREATE TABLE mainspring_pauses (
    queue TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE mainspring_nodes (
    term INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    counter INTEGER NOT NULL DEFAULT 0,
    alive INTEGER NOT NULL DEFAULT 1,
    joined_at INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    died_at INTEGER,
    record TEXT NOT NULL           -- what the node says about itself, a JSON object
);
CREATE INDEX mainspring_nodes_alive ON mainspring_nodes (id) WHERE alive = 1;

-- Ids of nodes that were pruned: none of them is given out again.
CREATE TABLE mainspring_past_nodes (id TEXT PRIMARY KEY) WITHOUT ROWID;

-- When a live node last knew a task that no live node knows now.
CREATE TABLE mainspring_known_tasks (
    task TEXT PRIMARY KEY,
    last_known INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE mainspring_orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    word TEXT NOT NULL,            -- what is asked, a JSON object
    given_at INTEGER NOT NULL,
    done_at INTEGER,
    answer TEXT
);
CREATE INDEX mainspring_orders_by_node ON mainspring_orders (node, id);

CREATE TABLE mainspring_locks (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    term INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Numbers that only grow: `rings`, once for each transaction after which someone may want to look; `lock_terms`, with
-- every change of any lock's holder, so that a lock that was pruned does not begin again.
CREATE TABLE mainspring_counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO mainspring_counters (name, value) VALUES ('rings', 0), ('lock_terms', 0);
