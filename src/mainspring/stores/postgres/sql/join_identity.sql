-- What tells these tables from those of every other store; a row that is always there. Read in full, it is one.
SELECT identity FROM mainspring.rules
