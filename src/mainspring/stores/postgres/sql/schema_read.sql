-- How the tables stand.
SELECT version, oldest_code FROM mainspring.versions
