-- The revision of what a node says about itself, so that a renewal reads the records of others only where they changed.
-- oldest code: 7
--
-- Code that does not know of it would change records without a new revision.

ALTER TABLE mainspring_nodes ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
