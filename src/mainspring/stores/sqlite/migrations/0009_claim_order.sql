-- Indexes of claimable jobs in claim order and by lane, in place of strands; parked jobs, whose key has no free place.
-- oldest code: 9
--
-- Older code would look for strands.

DROP TABLE mainspring_strands;
DROP INDEX mainspring_jobs_waiting;

-- A waiting job has a rank, or the key that it is parked for. All other jobs have neither.
ALTER TABLE mainspring_jobs ADD COLUMN rank INTEGER;  -- the negative priority: the lowest rank is claimed first
ALTER TABLE mainspring_jobs ADD COLUMN parked TEXT;
-- The column `strand` stays, unused: SQLite renames and drops columns only in a file in which every view is valid, and
-- the views may be the user's own.
-- Jobs of a lane that is missing get a rank too, so that claims meet them and log the lane.
UPDATE mainspring_jobs SET
    rank = coalesce((SELECT -lanes.priority FROM mainspring_lanes AS lanes WHERE lanes.id = mainspring_jobs.lane), 0),
    strand = NULL
WHERE strand IS NOT NULL;

-- Each has the columns that claims ask for, so that jobs which a claim does not take are passed over in the index alone.
CREATE INDEX mainspring_jobs_claimable ON mainspring_jobs (rank, run_at, id, lane) WHERE rank IS NOT NULL;
CREATE INDEX mainspring_jobs_claimable_by_lane ON mainspring_jobs (lane, run_at, id, rank) WHERE rank IS NOT NULL;
CREATE INDEX mainspring_jobs_parked ON mainspring_jobs (lane, parked, run_at, id) WHERE parked IS NOT NULL;

-- One row for each lane and key with parked jobs; it may outlive the last of them.
CREATE TABLE mainspring_parked_keys (
    task TEXT NOT NULL,
    key TEXT NOT NULL,
    lane INTEGER NOT NULL,
    opens_at INTEGER,              -- when the rate of the key allows the next start; NULL: a place has to be given up first
    PRIMARY KEY (task, key, lane)
) WITHOUT ROWID;
CREATE INDEX mainspring_parked_keys_by_time ON mainspring_parked_keys (task, opens_at, lane) WHERE opens_at IS NOT NULL;
