-- Whether there are tables of ours in the file.
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'mainspring_schema'
