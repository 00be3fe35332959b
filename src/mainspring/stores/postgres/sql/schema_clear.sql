-- Makes way for the row that says how the tables stand.
DELETE FROM mainspring.versions
