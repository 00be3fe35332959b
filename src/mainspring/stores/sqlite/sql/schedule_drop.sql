-- Takes a schedule away; its runs stay. Index: primary key.
DELETE FROM mainspring_schedules WHERE name = ?
