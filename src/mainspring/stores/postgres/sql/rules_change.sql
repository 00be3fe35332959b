-- Says that gates or pauses have changed: every claim reads them again.
UPDATE mainspring.rules SET version = version + 1
