-- Outboxes: the log of messages, where its numbers and its delivery stand, and what could not be delivered.
-- oldest code: 2
--
-- Code that does not know them publishes and delivers nothing, and leaves all of this alone.

CREATE TABLE mainspring.outboxes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    partitions integer NOT NULL,    -- for ever
    created_at timestamptz NOT NULL
);

-- One row for each partition of each outbox, called a line here: `outboxes.id * 64 + partition`. Never changed, only locked
-- by whoever gives numbers, so that nobody has to step over dead versions of it.
CREATE TABLE mainspring.outbox_lines (
    line bigint PRIMARY KEY,
    outbox bigint NOT NULL
);

-- The log: only added to, by users' transactions. A day whose messages are all delivered is emptied and dropped whole; what
-- no day was made for goes to `outbox_messages_rest`, from where it is deleted row by row. One index serves all: what is
-- new is found by transaction, and a message that is known by its transaction and number.
CREATE SEQUENCE mainspring.outbox_numbers CACHE 1;
CREATE TABLE mainspring.outbox_messages (
    line bigint NOT NULL,
    number bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),     -- of the whole transaction, whatever savepoints it has
    published_at timestamptz NOT NULL,
    key bytea,
    type text NOT NULL,
    traceparent text,
    payload bytea NOT NULL
) PARTITION BY RANGE (published_at);
CREATE TABLE mainspring.outbox_messages_rest PARTITION OF mainspring.outbox_messages DEFAULT;
CREATE INDEX outbox_messages_by_xid ON mainspring.outbox_messages (line, xid, number);
CREATE INDEX outbox_messages_rest_by_day ON mainspring.outbox_messages_rest (((published_at AT TIME ZONE 'UTC')::date));

-- Which message has which `seq`: one row for up to a thousand that were given theirs at the same time. The last one of a
-- line says by its snapshot which messages have theirs; it stays when its messages are gone.
CREATE TABLE mainspring.outbox_chunks (
    line bigint NOT NULL,
    last bigint NOT NULL,           -- the `seq` of its last message
    first bigint NOT NULL,
    numbers bigint[] NOT NULL,      -- of its messages, in order
    xids xid8[] NOT NULL,
    since timestamptz NOT NULL,     -- between these two all of them were published, so that only some days are looked at
    until timestamptz NOT NULL,
    snapshot pg_snapshot NOT NULL,  -- what was committed when it was written
    cluster bigint NOT NULL,        -- the server's own identifier: in any other the snapshot means nothing
    PRIMARY KEY (line, last)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Where delivery stands: one row for each line, written with every step. The revision is part of the key, as it is of
-- `positions`: the row is found as quickly as ever, by its revision or as the one with the highest, however many dead ones
-- somebody's forgotten transaction keeps.
CREATE TABLE mainspring.outbox_stands (
    line bigint NOT NULL,
    revision bigint NOT NULL,
    cursor bigint NOT NULL,
    holder text,
    given integer NOT NULL,
    width integer NOT NULL,
    attempts integer NOT NULL,
    retry_at timestamptz,
    error bytea NOT NULL,
    call uuid,                      -- who wrote it: if the answer was lost with its connection, it is asked for again
    PRIMARY KEY (line, revision)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Messages that were set aside, whole: the log may go on without them.
CREATE TABLE mainspring.outbox_asides (
    line bigint NOT NULL,
    seq bigint NOT NULL,
    number bigint NOT NULL,
    published_at timestamptz NOT NULL,
    key bytea,
    digest bytea,                   -- of the key, which may be longer than an index takes
    type text NOT NULL,
    traceparent text,
    payload bytea NOT NULL,
    attempts integer NOT NULL,
    retry_at timestamptz,           -- NULL: after the one before it with the same key
    error bytea NOT NULL,
    PRIMARY KEY (line, seq)
);
CREATE INDEX outbox_asides_by_key ON mainspring.outbox_asides (line, digest, seq) WHERE digest IS NOT NULL;
CREATE INDEX outbox_asides_due ON mainspring.outbox_asides (line, retry_at, seq) WHERE retry_at IS NOT NULL;

-- Dead letters, whole.
CREATE TABLE mainspring.outbox_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    line bigint NOT NULL,
    seq bigint NOT NULL,
    number bigint NOT NULL,
    published_at timestamptz NOT NULL,
    key bytea,
    type text NOT NULL,
    traceparent text,
    payload bytea NOT NULL,
    state text NOT NULL,            -- pending, reprocessing, resolved or discarded
    attempts integer NOT NULL,
    error bytea NOT NULL,
    failed_at timestamptz NOT NULL,
    term bigint NOT NULL DEFAULT 0,
    deadline timestamptz,
    completed_at timestamptz
);
CREATE INDEX outbox_letters_by_state ON mainspring.outbox_letters (state, failed_at, id);
CREATE INDEX outbox_letters_pending ON mainspring.outbox_letters (id) WHERE state = 'pending';
CREATE INDEX outbox_letters_overdue ON mainspring.outbox_letters (deadline, id) WHERE state = 'reprocessing';
CREATE INDEX outbox_letters_done ON mainspring.outbox_letters (completed_at, id) WHERE completed_at IS NOT NULL;

-- Texts by which messages are told from each other; each is known while its message is in the log, and for a day.
CREATE TABLE mainspring.outbox_texts (
    outbox bigint NOT NULL,
    digest bytea NOT NULL,
    line bigint NOT NULL,
    number bigint NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    published_at timestamptz NOT NULL,
    PRIMARY KEY (outbox, digest)
);
CREATE INDEX outbox_texts_by_time ON mainspring.outbox_texts (published_at, number);
