-- A store as the code of version 1 left it, dumped by sqlite3: jobs in every state, a node, a lock, a pause, a gate.
BEGIN TRANSACTION;
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
INSERT INTO "mainspring_attempts" VALUES(2,1,1,'worker','failed',1893456000123457,1893456000123457,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}','');
INSERT INTO "mainspring_attempts" VALUES(3,1,1,'worker','will_retry',1893456000123457,1893456000123457,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}','');
CREATE TABLE mainspring_counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "mainspring_counters" VALUES('lock_terms',1);
INSERT INTO "mainspring_counters" VALUES('rings',10);
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
INSERT INTO "mainspring_gates" VALUES('task','mail.send',5,NULL,NULL,NULL,NULL);
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
INSERT INTO "mainspring_jobs" VALUES(1,X'018F0000000270008000000000000002','succeeded',1,NULL,1893456000123457,1,0,0,1,2,NULL,NULL,1893456000123457,1893542400123457,NULL,'worker','worker',1893456000123457,NULL,X'3432');
INSERT INTO "mainspring_jobs" VALUES(2,X'018F0000000370008000000000000003','failed',2,NULL,1893456000123457,1,0,0,1,2,NULL,NULL,1893456000123457,1894060800123457,'refused','worker','worker',1893456000123457,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(3,X'018F0000000470008000000000000004','retrying',1,1,1893456010123457,1,0,0,1,2,NULL,NULL,NULL,NULL,NULL,'worker','worker',1893456000123457,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(4,X'018F0000000570008000000000000005','running',1,NULL,1893456000123457,1,0,0,1,1,NULL,NULL,NULL,NULL,NULL,'worker',NULL,1893456000123457,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(5,X'018F0000000670008000000000000006','scheduled',1,3,1893459600123457,0,0,0,0,0,1893542400123457,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(6,X'018F0000000770008000000000000007','ready',3,4,1893456000123457,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE mainspring_known_tasks (
    task TEXT PRIMARY KEY,
    last_known INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE mainspring_lanes (
    id INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    suspect INTEGER NOT NULL,      -- 1: for jobs whose next loss would be their last
    UNIQUE (task, queue, priority, suspect)
);
INSERT INTO "mainspring_lanes" VALUES(1,'mail.send','default',50,0);
INSERT INTO "mainspring_lanes" VALUES(2,'photos:resize','photos',75,0);
INSERT INTO "mainspring_lanes" VALUES(3,'photos:resize','default',50,0);
CREATE TABLE mainspring_locks (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    term INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "mainspring_locks" VALUES('ticker','a',1,1893459600123457);
CREATE TABLE mainspring_log_lines (
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    at INTEGER NOT NULL,
    level TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (number, position)
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
INSERT INTO "mainspring_nodes" VALUES(1,'worker',0,1,1893456000123457,1893456000123457,NULL,'{"id":"worker","process":{"host":"here","pid":1,"started":"today"},"tasks":[{"namespace":"","local":"mail.send"},{"namespace":"photos","local":"resize"}],"queues":null,"concurrency":0,"version":"","doorbell":null}');
CREATE TABLE mainspring_orders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    word TEXT NOT NULL,            -- what is asked, a JSON object
    given_at INTEGER NOT NULL,
    done_at INTEGER,
    answer TEXT
);
CREATE TABLE mainspring_past_nodes (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE mainspring_pauses (
    queue TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "mainspring_pauses" VALUES('mail',1893456000123457,'me','');
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
INSERT INTO "mainspring_payloads" VALUES(1,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,NULL,NULL,'["k",86400000000,"return"]',NULL,'{"tags":["a"]}',X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(2,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,NULL,NULL,NULL,NULL,NULL,X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(3,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,NULL,NULL,NULL,NULL,NULL,X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(4,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,NULL,NULL,NULL,NULL,NULL,X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(5,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,1000000,'eu',NULL,X'018F0000000270008000000000000002','{"owner":"me"}',X'5B5B315D2C7B7D5D');
INSERT INTO "mainspring_payloads" VALUES(6,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893456000123457,NULL,NULL,NULL,NULL,NULL,X'7B7D');
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
INSERT INTO "mainspring_places" VALUES('task','mail.send','',X'018F0000000570008000000000000005',1,'worker',0);
CREATE TABLE mainspring_schema (
    version INTEGER NOT NULL,      -- the last migration that was made
    oldest_code INTEGER NOT NULL,  -- code that knows this migration, or a later one, can work with these tables
    changed_at INTEGER NOT NULL
);
INSERT INTO "mainspring_schema" VALUES(1,1,1893456000123457);
CREATE TABLE mainspring_spent (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    spent_until INTEGER NOT NULL,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;
CREATE TABLE mainspring_strands (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    key TEXT,
    head_at INTEGER,               -- run_at and id of its first job; NULL: it is empty, which only one without a key may be
    head_id BLOB,
    full INTEGER NOT NULL DEFAULT 0,   -- 1: as many jobs run with this key as may
    opens_at INTEGER               -- when the key's rate lets the next one start; NULL: now
);
INSERT INTO "mainspring_strands" VALUES(1,1,NULL,1893456010123457,X'018F0000000470008000000000000004',0,NULL);
INSERT INTO "mainspring_strands" VALUES(2,2,NULL,NULL,NULL,0,NULL);
INSERT INTO "mainspring_strands" VALUES(3,1,'eu',1893459600123457,X'018F0000000670008000000000000006',0,NULL);
INSERT INTO "mainspring_strands" VALUES(4,3,NULL,1893456000123457,X'018F0000000770008000000000000007',0,NULL);
CREATE TABLE mainspring_traces (
    number INTEGER PRIMARY KEY,
    saved BLOB,
    percent REAL,
    message TEXT,
    error TEXT                     -- of the last attempt that had one, a JSON object
);
INSERT INTO "mainspring_traces" VALUES(2,NULL,NULL,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}');
INSERT INTO "mainspring_traces" VALUES(3,NULL,NULL,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}');
CREATE TABLE mainspring_unique_keys (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    job BLOB NOT NULL,
    taken_until INTEGER,
    PRIMARY KEY (task, key)
) WITHOUT ROWID;
INSERT INTO "mainspring_unique_keys" VALUES('mail.send','k',X'018F0000000270008000000000000002',1893542400123457);
CREATE UNIQUE INDEX mainspring_jobs_by_id ON mainspring_jobs (id);
CREATE INDEX mainspring_jobs_waiting ON mainspring_jobs (strand, run_at, id) WHERE strand IS NOT NULL;
CREATE INDEX mainspring_jobs_running ON mainspring_jobs (node, losses) WHERE state = 'running';
CREATE INDEX mainspring_jobs_finished ON mainspring_jobs (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX mainspring_jobs_failed ON mainspring_jobs (id) WHERE state = 'failed';
CREATE INDEX mainspring_payloads_by_parent ON mainspring_payloads (parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX mainspring_strands_by_key ON mainspring_strands (lane, key);
CREATE INDEX mainspring_strands_open ON mainspring_strands (lane, head_at, head_id)
    WHERE head_at IS NOT NULL AND full = 0 AND opens_at IS NULL;
CREATE INDEX mainspring_strands_shut ON mainspring_strands (lane, opens_at)
    WHERE opens_at IS NOT NULL AND full = 0;
CREATE INDEX mainspring_places_by_job ON mainspring_places (job);
CREATE INDEX mainspring_unique_keys_by_time ON mainspring_unique_keys (taken_until) WHERE taken_until IS NOT NULL;
CREATE INDEX mainspring_nodes_alive ON mainspring_nodes (id) WHERE alive = 1;
CREATE INDEX mainspring_orders_by_node ON mainspring_orders (node, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('mainspring_nodes',1);
COMMIT;
