-- What nodes said last: as many rows as there are nodes.
SELECT node, at, body FROM mainspring_reports
