-- Writes what belongs to the end of an attempt alone. Index: primary key.
UPDATE mainspring_jobs SET settled_by = ?, seconds = ?, result = ? WHERE number = ?
