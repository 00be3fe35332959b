-- Outboxes: their messages, where the delivery of each partition stands, and dead letters.
-- oldest code: 2
--
-- Code that does not know them leaves them alone.

CREATE TABLE mainspring_outboxes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX mainspring_outboxes_by_name ON mainspring_outboxes (name);

-- A partition: what its last message is, and where its delivery stands. Its id is that of the outbox times 64 and its own
-- number, so that who knows the one knows the other.
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

-- The log. A message's number is that of its partition times 2^40 and its seq: the order of the table is that of delivery,
-- and no index is needed beside it. A partition's numbers are given one by one, so there is none missing in between.
CREATE TABLE mainspring_messages (
    number INTEGER PRIMARY KEY,
    published_at INTEGER NOT NULL,
    type TEXT NOT NULL,
    key TEXT,
    traceparent TEXT,
    payload BLOB NOT NULL
);

-- Texts under which a message is published once.
CREATE TABLE mainspring_unique_texts (
    outbox INTEGER NOT NULL,
    text TEXT NOT NULL,
    number INTEGER NOT NULL,       -- of the message
    taken_at INTEGER NOT NULL,
    PRIMARY KEY (outbox, text)
) WITHOUT ROWID;
CREATE UNIQUE INDEX mainspring_unique_texts_by_number ON mainspring_unique_texts (number);

-- Messages that are to be delivered again, with all that is in the log of them: their place there may be cleared away.
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
CREATE INDEX mainspring_asides_by_time ON mainspring_asides (partition, retry_at, number) WHERE retry_at IS NOT NULL;
CREATE INDEX mainspring_asides_by_key ON mainspring_asides (partition, key, number) WHERE key IS NOT NULL;

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
CREATE INDEX mainspring_dead_letters_pending ON mainspring_dead_letters (id) WHERE state = 'pending';
CREATE INDEX mainspring_dead_letters_by_time ON mainspring_dead_letters (state, failed_at, id);
CREATE INDEX mainspring_dead_letters_by_outbox ON mainspring_dead_letters (outbox, state, failed_at, id);
CREATE INDEX mainspring_dead_letters_by_deadline ON mainspring_dead_letters (deadline, id) WHERE deadline IS NOT NULL;
CREATE INDEX mainspring_dead_letters_ended ON mainspring_dead_letters (completed_at) WHERE completed_at IS NOT NULL;
