-- Holds the row with the version of the tables until the transaction ends: a node that joins meanwhile waits.
SELECT FROM mainspring.versions FOR UPDATE
