-- What nodes said last. Reads all of it: one row for each node.
SELECT node, said_at, body FROM mainspring.reports
