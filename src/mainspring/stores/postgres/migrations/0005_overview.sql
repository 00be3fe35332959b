-- A store as a whole: what nodes count and say, who did what, operators' limits, and indexes for search.
-- oldest code: 5
--
-- Code that does not know of operators' limits would run more jobs of a queue than they let it, and take a limit away
-- with the gate of a queue that it declares none for. The indexes on `jobs` and `history` are made while writers wait: a
-- second for each million finished jobs, or two.

-- What was counted in a span of time, by whom: one row, written again and again until the span is over.
CREATE TABLE mainspring.tallies (
    span interval NOT NULL,
    began_at timestamptz NOT NULL,
    counted_by text COLLATE "C" NOT NULL,   -- a node, or '' for what was put together
    body bytea NOT NULL,
    PRIMARY KEY (span, began_at, counted_by)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- What a node said last about how it is doing.
CREATE TABLE mainspring.reports (
    node text PRIMARY KEY,
    said_at timestamptz NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE mainspring.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    written_at timestamptz NOT NULL,
    who bytea NOT NULL,
    action bytea NOT NULL,
    about bytea NOT NULL,
    count bigint,
    outcome bytea NOT NULL,
    detail bytea
);
CREATE INDEX audit_by_time ON mainspring.audit (written_at);
CREATE INDEX audit_by_about ON mainspring.audit (hashtextextended(encode(about, 'hex'), 0), id);

-- Finished jobs by how they ended, queue and task, all in one number: one small index for each job to pay for, and not
-- one for each of the three. Which numbers there are is found by stepping from one to the next. The id is not there as
-- it is: PostgreSQL, of a table that it believes to be empty, would look for jobs by their ids in this one, and go
-- through all of it.
CREATE INDEX history_by_kind
ON mainspring.history (hashtextextended(task, hashtextextended(queue, hashtextextended(state, 0))), uuid_send(id));

-- In place of one for failed jobs alone: whoever ends a job well pays for neither.
DROP INDEX mainspring.history_failed;
CREATE INDEX history_ended_badly ON mainspring.history (state, id) WHERE state <> 'succeeded';

-- Keys may be longer than what an index takes.
CREATE INDEX history_by_key ON mainspring.history (hashtextextended(encode(key, 'hex'), 0), uuid_send(id))
WHERE key IS NOT NULL;
CREATE INDEX jobs_by_key ON mainspring.jobs (hashtextextended(encode(key, 'hex'), 0), uuid_send(id))
WHERE key IS NOT NULL AND state <> 'running';

-- Jobs that were not to run at once. Those that were are most jobs, and have none: an index for them would be written by
-- every enqueue, and where they are few the lanes know them.
CREATE INDEX jobs_deferred ON mainspring.jobs (state, uuid_send(id)) WHERE state IN ('scheduled', 'retrying');

-- An operator's limit of a queue, which holds in place of the declared `concurrency`. A gate may be here for it alone.
-- Last, because claims wait from here on until the commit.
ALTER TABLE mainspring.gates ADD COLUMN limited integer, ADD COLUMN limited_by bytea;
