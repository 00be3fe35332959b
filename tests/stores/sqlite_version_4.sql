-- A store as the code of version 4 left it, dumped by sqlite3: what version 3 had left, an outbox with two messages, a
-- gate of a queue, two jobs with a key.
BEGIN TRANSACTION;
CREATE TABLE mainspring_asides (
    number INTEGER PRIMARY KEY,    -- of the message
    partition INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    traceparent TEXT,
    payload BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    retry_at INTEGER,              -- NULL: after the one before it with the same key
    error TEXT NOT NULL
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
INSERT INTO "mainspring_attempts" VALUES(2,1,1,'worker','failed',1893456000123457,1893456000123457,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}','');
INSERT INTO "mainspring_attempts" VALUES(3,1,1,'worker','will_retry',1893456000123457,1893456000123457,NULL,'{"type":"ValueError","message":"no","traceback":"Traceback…"}','');
CREATE TABLE mainspring_breaker_changes (
    task TEXT NOT NULL,
    term INTEGER NOT NULL,         -- that began by it
    at INTEGER NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    job BLOB,
    moved_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (task, term)
) WITHOUT ROWID;
INSERT INTO "mainspring_breaker_changes" VALUES('mail.send',1,1893459600123457,'closed','open',NULL,'me','closed for stocktaking');
CREATE TABLE mainspring_breakers (
    task TEXT NOT NULL PRIMARY KEY,
    threshold INTEGER,             -- NULL: there is no breaker any more, and only its term is kept
    cooldown INTEGER,
    phase TEXT NOT NULL,
    term INTEGER NOT NULL,         -- grows with every change of phase
    revision INTEGER NOT NULL,     -- grows with every change
    failures INTEGER NOT NULL,     -- in a row
    opened_at INTEGER,
    probe_job BLOB,                -- the one attempt that may run while it is half open
    probe_lease INTEGER,
    forced INTEGER NOT NULL,       -- 1: only an operator moves it
    since INTEGER NOT NULL,        -- when its phase began
    moved_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "mainspring_breakers" VALUES('mail.send',3,30000000,'open',1,1,0,1893459600123457,NULL,NULL,1,1893459600123457,'me','closed for stocktaking');
CREATE TABLE mainspring_counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "mainspring_counters" VALUES('lock_terms',1);
INSERT INTO "mainspring_counters" VALUES('rings',18);
CREATE TABLE mainspring_dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox INTEGER NOT NULL,
    number INTEGER NOT NULL,       -- of the message; all that it was follows
    published_at INTEGER NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    traceparent TEXT,
    payload BLOB NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    failed_at INTEGER NOT NULL,
    term INTEGER NOT NULL DEFAULT 0,
    deadline INTEGER,              -- until when whoever reprocesses it may take
    completed_at INTEGER
);
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
INSERT INTO "mainspring_gates" VALUES('queue','default',4,NULL,NULL,NULL,NULL);
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
INSERT INTO "mainspring_jobs" VALUES(7,X'018F0000006470008000000000000064','ready',1,1,1893459600123457,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(8,X'018F0000138870008000000000001388','ready',4,5,1893463200123457,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "mainspring_jobs" VALUES(9,X'018F0000138970008000000000001389','ready',4,5,1893463200123457,0,0,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "mainspring_lanes" VALUES(4,'mail.send','keyed',50,0);
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
CREATE TABLE mainspring_messages (
    number INTEGER PRIMARY KEY,
    published_at INTEGER NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    traceparent TEXT,
    payload BLOB NOT NULL
);
INSERT INTO "mainspring_messages" VALUES(70368744177665,1893463200123457,'order',NULL,NULL,X'31');
INSERT INTO "mainspring_messages" VALUES(70368744177666,1893463200123457,'order',NULL,NULL,X'32');
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
CREATE TABLE mainspring_outboxes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
INSERT INTO "mainspring_outboxes" VALUES(1,'orders',4,1893463200123457);
CREATE TABLE mainspring_partitions (
    id INTEGER PRIMARY KEY,
    last INTEGER NOT NULL DEFAULT 0,     -- the highest seq that was given, in the transaction that gave it
    cleared INTEGER NOT NULL DEFAULT 0,  -- up to here messages have been cleared away
    revision INTEGER NOT NULL DEFAULT 0, -- grows with every step of delivery, each of which is made from the one before
    cursor INTEGER NOT NULL DEFAULT 0,   -- up to here everything is done
    holder TEXT,
    given INTEGER NOT NULL DEFAULT 0,
    width INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    retry_at INTEGER,
    error TEXT NOT NULL DEFAULT ''
);
INSERT INTO "mainspring_partitions" VALUES(64,2,0,0,0,NULL,0,0,0,NULL,'');
INSERT INTO "mainspring_partitions" VALUES(65,0,0,0,0,NULL,0,0,0,NULL,'');
INSERT INTO "mainspring_partitions" VALUES(66,0,0,0,0,NULL,0,0,0,NULL,'');
INSERT INTO "mainspring_partitions" VALUES(67,0,0,0,0,NULL,0,0,0,NULL,'');
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
INSERT INTO "mainspring_payloads" VALUES(7,1,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0,1]',1893459600123457,NULL,NULL,NULL,NULL,'{"slot":{"schedule":"hourly","slot":"2030-01-01T01:00:00.123457Z"}}',X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(8,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893463200123457,NULL,'k',NULL,NULL,NULL,X'7B7D');
INSERT INTO "mainspring_payloads" VALUES(9,3,3,'[10000000,0,3155760000000000,86400000000,604800000000,1.0,0.0]',1893463200123457,NULL,'k',NULL,NULL,NULL,X'7B7D');
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
INSERT INTO "mainspring_places" VALUES('queue','default','',X'018F0000000570008000000000000005',1,'worker',0);
INSERT INTO "mainspring_places" VALUES('task','mail.send','',X'018F0000000570008000000000000005',1,'worker',0);
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
INSERT INTO "mainspring_runs" VALUES(X'018F0000006470008000000000000064','hourly',1893459600123457,NULL,1,'slot',0,'UTC',NULL,NULL,1893459600123457,NULL,NULL,NULL,1,1896051600123457);
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
INSERT INTO "mainspring_schedules" VALUES('hourly',NULL,1893456000123458,NULL,1,0,NULL,X'7B226E616D65223A7B226E616D657370616365223A22222C226C6F63616C223A22686F75726C79227D2C22706C616E223A7B2272756C65223A7B2274797065223A226576657279222C22696E74657276616C223A2250543336303053222C2261667465725F656E64223A747275652C227374617274223A22323033302D30312D30315430313A30303A30302E3132333435375A227D2C2274656D706C617465223A7B227461736B223A7B226E616D657370616365223A22222C226C6F63616C223A226D61696C2E73656E64227D2C227061796C6F6164223A226533303D222C226261636B6F6666223A7B22696E697469616C223A225054313053222C22696E6372656D656E74223A22503044222C226D756C7469706C696572223A312E302C22636170223A2250333635323544222C226A6974746572223A302E307D2C226D61785F617474656D707473223A317D2C226B6565705F72756E73223A2250333044227D2C22637265617465645F6174223A22323033302D30312D30315430303A30303A30302E3132333435375A222C22637572736F72223A22323033302D30312D30315430313A30303A30302E3132333435375A222C226E6578745F6174223A6E756C6C2C227265766973696F6E223A313839333435363030303132333435382C226F776E6572223A6E756C6C2C2272656C65617365223A22222C22706175736564223A6E756C6C2C2272756E73223A312C2268656C64223A6E756C6C2C227761697473223A747275652C226C6173745F656E64223A6E756C6C2C226C6173745F64726F70223A6E756C6C2C226C6173745F64726F705F67726F776E223A302C226B6E6F776E5F73696E6365223A6E756C6C7D');
CREATE TABLE mainspring_schema (
    version INTEGER NOT NULL,      -- the last migration that was made
    oldest_code INTEGER NOT NULL,  -- code that knows this migration, or a later one, can work with these tables
    changed_at INTEGER NOT NULL
);
INSERT INTO "mainspring_schema" VALUES(4,2,1893463200123457);
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
INSERT INTO "mainspring_strands" VALUES(5,4,'k',1893463200123457,X'018F0000138870008000000000001388',0,NULL);
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
CREATE TABLE mainspring_unique_texts (
    outbox INTEGER NOT NULL,
    text TEXT NOT NULL,
    number INTEGER NOT NULL,       -- of the message
    taken_at INTEGER NOT NULL,
    PRIMARY KEY (outbox, text)
) WITHOUT ROWID;
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
CREATE INDEX mainspring_schedules_by_time ON mainspring_schedules (next_at, name) WHERE next_at IS NOT NULL;
CREATE INDEX mainspring_schedules_by_owner ON mainspring_schedules (owner, name) WHERE owner IS NOT NULL;
CREATE UNIQUE INDEX mainspring_runs_by_slot ON mainspring_runs (schedule, slot)
    WHERE reason IS NULL AND slot IS NOT NULL;
CREATE INDEX mainspring_runs_of_schedule ON mainspring_runs (schedule, id);
CREATE INDEX mainspring_runs_open ON mainspring_runs (schedule, id) WHERE is_open;
CREATE INDEX mainspring_runs_by_time ON mainspring_runs (keep_until) WHERE NOT is_open;
CREATE INDEX mainspring_breakers_by_probe ON mainspring_breakers (probe_job) WHERE probe_job IS NOT NULL;
CREATE UNIQUE INDEX mainspring_outboxes_by_name ON mainspring_outboxes (name);
CREATE UNIQUE INDEX mainspring_unique_texts_by_number ON mainspring_unique_texts (number);
CREATE INDEX mainspring_asides_by_time ON mainspring_asides (partition, retry_at, number) WHERE retry_at IS NOT NULL;
CREATE INDEX mainspring_asides_by_key ON mainspring_asides (partition, key, number) WHERE key IS NOT NULL;
CREATE INDEX mainspring_dead_letters_pending ON mainspring_dead_letters (id) WHERE state = 'pending';
CREATE INDEX mainspring_dead_letters_by_time ON mainspring_dead_letters (state, failed_at, id);
CREATE INDEX mainspring_dead_letters_by_outbox ON mainspring_dead_letters (outbox, state, failed_at, id);
CREATE INDEX mainspring_dead_letters_by_deadline ON mainspring_dead_letters (deadline, id) WHERE deadline IS NOT NULL;
CREATE INDEX mainspring_dead_letters_ended ON mainspring_dead_letters (completed_at) WHERE completed_at IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('mainspring_nodes',1);
COMMIT;
