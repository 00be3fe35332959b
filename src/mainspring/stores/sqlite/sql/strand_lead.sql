-- Gives a line another first job. Index: primary key.
UPDATE mainspring_strands SET head_at = ?, head_id = ? WHERE id = ?
