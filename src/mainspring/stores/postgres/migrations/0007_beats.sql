-- Renewals of nodes in a table of their own, and the revision of a node's record.
-- oldest code: 7
--
-- A renewal updated the row of its node in place. While an old snapshot was held open, every version of it stayed, and
-- all of them were read by every renewal, claim and settle. Now the counter is part of the key: the newest row of a node
-- is the first that a look from the end of its part of the index comes to.
--
-- The lock keeps nodes from joining between the copy and the change of the table.
LOCK TABLE mainspring.nodes IN ACCESS EXCLUSIVE MODE;
CREATE TABLE mainspring.beats (
    term bigint NOT NULL,
    counter bigint NOT NULL,
    renewed_at timestamptz NOT NULL,
    PRIMARY KEY (term, counter)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
INSERT INTO mainspring.beats (term, counter, renewed_at) SELECT term, counter, renewed_at FROM mainspring.nodes;

ALTER TABLE mainspring.nodes
    DROP COLUMN counter, DROP COLUMN renewed_at, ADD COLUMN revision bigint NOT NULL DEFAULT 0;
