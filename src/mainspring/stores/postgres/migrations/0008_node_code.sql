-- The last migration in the code of each node.
-- oldest code: 7
--
-- A later migration that raises "oldest code" waits for nodes of older code to stop: nodes that joined before this one
-- have the number 0.

ALTER TABLE mainspring.nodes ADD COLUMN code integer NOT NULL DEFAULT 0;
