-- Breakers of tasks, and how they came to stand as they do.
-- oldest code: 2
--
-- Code that does not know them neither counts nor respects them: it gives out jobs of an open one, as it always did, and
-- its own attempts are no probes. A probe that it reaps is let go of by the next one that mends.

-- Whatever claims go by is told by the rules' version, in the transaction that changes it: all but the count of failures.
CREATE TABLE mainspring.breakers (
    task text COLLATE "C" PRIMARY KEY,
    threshold integer,              -- NULL: there is no breaker any more, and only its term is kept
    cooldown interval,
    phase text NOT NULL,            -- closed, open or half_open
    term bigint NOT NULL,           -- grows with every change of phase
    revision bigint NOT NULL,       -- grows with every change
    failures integer NOT NULL,      -- in a row
    opened_at timestamptz,
    probe_job uuid,                 -- the one attempt that may run while it is half open
    probe_lease bigint,
    forced boolean NOT NULL,        -- only an operator moves it
    since timestamptz NOT NULL,     -- when its phase began
    moved_by text NOT NULL,
    reason text NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX breakers_by_probe ON mainspring.breakers (probe_job) WHERE probe_job IS NOT NULL;

-- The last hundred changes of phase of each task.
CREATE TABLE mainspring.breaker_changes (
    task text COLLATE "C" NOT NULL,
    term bigint NOT NULL,           -- that began by it
    at timestamptz NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    job uuid,
    moved_by text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (task, term)
);
