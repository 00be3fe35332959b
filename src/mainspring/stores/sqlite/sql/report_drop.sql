-- Forgets what a node said. Index: primary key.
DELETE FROM mainspring_reports WHERE node = ?
