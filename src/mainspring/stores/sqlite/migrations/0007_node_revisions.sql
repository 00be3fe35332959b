-- The revision of a node's record, so that a renewal reads only the records of other nodes that have changed.
-- oldest code: 7
--
-- Older code would change records without a new revision.

ALTER TABLE mainspring_nodes ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
