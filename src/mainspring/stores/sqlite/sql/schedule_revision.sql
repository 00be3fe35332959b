-- At which revision a schedule is. Index: primary key.
SELECT revision FROM mainspring_schedules WHERE name = ?
