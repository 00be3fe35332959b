-- How often something happened that somebody may want to look at. Index: primary key.
SELECT value FROM mainspring_counters WHERE name = 'rings'
