-- What a store is looked at by as a whole: indexes to search in, tallies, reports of nodes, the audit log; and limits of
-- queues that operators have set.
-- oldest code: 5
--
-- Code that does not know of these limits would run more jobs of a queue than an operator lets it.

-- Jobs of a lane by id, and of a state. Those that are ready, run or have succeeded are not in the second: it is the way of
-- almost every job, which would pay for it with a twentieth of its time. It takes the place of an index of failed jobs alone.
CREATE INDEX mainspring_jobs_by_lane ON mainspring_jobs (lane, id);
CREATE INDEX mainspring_jobs_by_state ON mainspring_jobs (state, id)
    WHERE state <> 'ready' AND state <> 'running' AND state <> 'succeeded';
DROP INDEX mainspring_jobs_failed;

-- Jobs of a key by id. Those that have none cost nothing.
ALTER TABLE mainspring_payloads ADD COLUMN job BLOB;  -- the id of a job that has a key
UPDATE mainspring_payloads SET job = (SELECT id FROM mainspring_jobs AS jobs WHERE jobs.number = mainspring_payloads.number)
WHERE key IS NOT NULL;
CREATE INDEX mainspring_payloads_by_key ON mainspring_payloads (key, job) WHERE key IS NOT NULL;

CREATE TABLE mainspring_tallies (
    span INTEGER NOT NULL,
    at INTEGER NOT NULL,           -- when it begins
    counted_by TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (span, at, counted_by)
) WITHOUT ROWID;

CREATE TABLE mainspring_reports (
    node TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE mainspring_audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    about TEXT NOT NULL,
    count INTEGER,
    outcome TEXT NOT NULL,
    detail BLOB                    -- JSON
);
CREATE INDEX mainspring_audit_by_time ON mainspring_audit (at);
CREATE INDEX mainspring_audit_by_about ON mainspring_audit (about, id);

-- How many jobs of a queue may run at a time, as an operator has it; in place of what its gate says.
CREATE TABLE mainspring_queue_limits (
    queue TEXT PRIMARY KEY,
    concurrency INTEGER NOT NULL,
    set_by TEXT NOT NULL
) WITHOUT ROWID;
