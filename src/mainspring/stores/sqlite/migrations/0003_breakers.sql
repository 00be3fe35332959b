-- Breakers of tasks, and how they came to stand as they do.
-- oldest code: 2
--
-- Code that does not know them neither counts nor respects them: it gives out jobs of an open one, as it always did, and
-- its own attempts are no probes. A probe that it reaps is let go of by the next one that mends.

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
CREATE INDEX mainspring_breakers_by_probe ON mainspring_breakers (probe_job) WHERE probe_job IS NOT NULL;

-- The last hundred changes of phase of each task.
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
