-- Writes that a run has no job: another job has the unique key of its own. Index: primary key.
UPDATE mainspring_runs SET reason = 'taken', last = slot, is_open = 0 WHERE id = ?
